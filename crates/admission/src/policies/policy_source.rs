//! Index of compiled policies with their bindings, ordered by name.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Value, meta,
    selector::{LabelSelector, SelectorError},
    status::Status,
};
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};

use super::{
    GROUP,
    params::{ParamKind, collect_params},
};
use crate::{
    AdmissionAttributes, DenialReason, PluginError, PluginInit,
    matching::{Invocation, MatchCriteria},
};

/// An index of policies that have bindings, built from the watch cache.
pub struct PolicySource<E> {
    index: CacheIndex<PolicyIndex<E>>,
}

/// A policy and its bindings.
pub struct PolicyHook<E> {
    /// The policy.
    pub policy: Arc<CompiledPolicy<E>>,
    /// The bindings of the policy.
    pub bindings: Vec<Arc<PolicyBinding>>,
}

/// A matched resource, and the matching bindings with their parameter objects or configuration error.
pub type MatchedPolicy<'h> = (Invocation, Vec<(&'h PolicyBinding, Result<Vec<Value>, DenialReason>)>);

/// A compiled policy.
pub struct CompiledPolicy<E> {
    /// The policy's name.
    pub name: String,
    /// Its `matchConstraints`.
    pub constraints: MatchConstraints,
    /// Its `paramKind`.
    pub params: Option<ParamKind>,
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub reinvoke_if_needed: bool,
    /// Its compiled expressions.
    pub compiled: E,
}

/// A policy binding.
pub struct PolicyBinding {
    /// The binding's name.
    pub name: String,
    /// The name of the policy.
    pub policy: String,
    /// `matchResources`, which narrow the policy's constraints; `None` matches all of them.
    pub constraints: Option<MatchConstraints>,
    /// Its `paramRef`.
    pub params: Option<Value>,
    /// Its `validationActions`.
    pub actions: Vec<String>,
}

/// Match criteria of a policy (`matchConstraints`) or binding (`matchResources`).
pub struct MatchConstraints {
    rules: Vec<Value>,
    excludes: Vec<Value>,
    equivalent: bool,
    namespaces: Result<LabelSelector, SelectorError>,
    objects: Result<LabelSelector, SelectorError>,
}

impl MatchConstraints {
    fn from_match_resources(resources: &Value) -> Self {
        let selector = |field: &str| {
            let selector = meta::value_at(resources, &[field]).cloned().unwrap_or_else(|| serde_json::json!({}));
            LabelSelector::from_object(&selector)
        };
        Self {
            rules: meta::list_at(resources, &["resourceRules"]).to_vec(),
            excludes: meta::list_at(resources, &["excludeResourceRules"]).to_vec(),
            equivalent: meta::string_at(resources, &["matchPolicy"]) != "Exact",
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// Matches a request; `None` if the constraints do not select it.
    pub async fn match_request(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<Invocation>, Status> {
        let criteria = MatchCriteria {
            rules: (!self.rules.is_empty()).then_some(&self.rules),
            exclude_rules: &self.excludes,
            equivalent: self.equivalent,
            namespace_selector: &self.namespaces,
            object_selector: &self.objects,
        };
        criteria.match_request(attributes, object).await
    }
}

impl<E> PolicyHook<E> {
    /// Matches a request against the policy and its bindings, and reads the parameter objects of each binding; `None`
    /// if the policy does not select it. Errors are those of the configuration.
    pub async fn match_request<'h>(
        &'h self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<MatchedPolicy<'h>>, DenialReason> {
        let constraints = &self.policy.constraints;
        let matched = constraints.match_request(attributes, object).await.map_err(|status| status.message)?;
        let Some(invocation) = matched else { return Ok(None) };
        let resource = self.policy.params.as_ref().map(|kind| kind.find_resource(attributes)).transpose()?;
        let mut bindings = Vec::new();
        for binding in &self.bindings {
            let params = match binding.matches_request(attributes, object).await {
                Ok(true) => collect_params(resource.as_deref(), binding.params.as_ref(), attributes).await,
                Ok(false) => continue,
                Err(status) => Err(status.message.into()),
            };
            bindings.push((&**binding, params));
        }
        Ok(Some((invocation, bindings)))
    }
}

impl PolicyBinding {
    fn from_object(object: &Value) -> Self {
        let actions = meta::list_at(object, &["spec", "validationActions"]);
        Self {
            name: meta::name(object).to_owned(),
            policy: meta::string_at(object, &["spec", "policyName"]).to_owned(),
            constraints: meta::value_at(object, &["spec", "matchResources"])
                .map(MatchConstraints::from_match_resources),
            params: meta::value_at(object, &["spec", "paramRef"]).cloned(),
            actions: actions.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Whether the binding's `matchResources` select a request that matches its policy.
    pub async fn matches_request(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<bool, Status> {
        match &self.constraints {
            None => Ok(true),
            Some(constraints) => Ok(constraints.match_request(attributes, object).await?.is_some()),
        }
    }
}

impl<E: Send + Sync + 'static> PolicySource<E> {
    /// Indexes policies and bindings; `resources` names them in that order.
    pub fn new(
        init: &PluginInit<'_>,
        resources: [&'static str; 2],
        compile: fn(&Value) -> E,
    ) -> Result<Self, PluginError> {
        let find_resource = |name: &str| loopback::find_resource(GROUP, "v1", name);
        let indexed = [find_resource(resources[0])?, find_resource(resources[1])?];
        let policies = PolicyIndex {
            compile,
            resource: resources[0],
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            hooks: Arc::default(),
        };
        let index = CacheIndex::new(init.cache, &indexed, policies)?;
        Ok(Self { index })
    }

    /// Whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.index.read(|policies| policies.hooks.is_empty())
    }

    /// Returns all policies with their bindings.
    pub fn hooks(&self) -> Arc<Vec<PolicyHook<E>>> {
        self.index.read(|policies| policies.hooks.clone())
    }
}

struct PolicyIndex<E> {
    compile: fn(&Value) -> E,
    resource: &'static str,
    policies: BTreeMap<String, Arc<CompiledPolicy<E>>>,
    bindings: BTreeMap<String, Arc<PolicyBinding>>,
    hooks: Arc<Vec<PolicyHook<E>>>,
}

impl<E: Send + Sync + 'static> Indexer for PolicyIndex<E> {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        let name = key.name.to_owned();
        if key.resource.name != self.resource {
            self.bindings.insert(name, Arc::new(PolicyBinding::from_object(object)));
            return;
        }
        let policy = CompiledPolicy {
            name: name.clone(),
            constraints: MatchConstraints::from_match_resources(&object["spec"]["matchConstraints"]),
            params: ParamKind::from_policy(object),
            ignores_failure: meta::string_at(object, &["spec", "failurePolicy"]) == "Ignore",
            reinvoke_if_needed: meta::string_at(object, &["spec", "reinvocationPolicy"]) == "IfNeeded",
            compiled: (self.compile)(object),
        };
        self.policies.insert(name, Arc::new(policy));
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        if key.resource.name == self.resource {
            self.policies.remove(key.name);
        } else {
            self.bindings.remove(key.name);
        }
    }

    fn clear(&mut self) {
        self.policies.clear();
        self.bindings.clear();
    }

    fn rebuild(&mut self) {
        let bound = |policy: &Arc<CompiledPolicy<E>>| {
            let bindings = self.bindings.values().filter(|binding| binding.policy == policy.name).cloned();
            let bindings: Vec<Arc<PolicyBinding>> = bindings.collect();
            (!bindings.is_empty()).then(|| PolicyHook { policy: policy.clone(), bindings })
        };
        self.hooks = Arc::new(self.policies.values().filter_map(bound).collect());
    }
}
