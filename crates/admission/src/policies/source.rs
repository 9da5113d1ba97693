//! Index of compiled policies with their bindings, ordered by name.

use std::{collections::BTreeMap, sync::Arc};

use api::{Value, meta, selector::LabelSelector, status::Status};
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};

use super::{GROUP, params::ParamKind};
use crate::{
    AdmissionAttributes, PluginInit,
    matching::{Asked, Invocation},
};

/// An index of policies that have bindings, built from the watch cache.
pub struct Source<E> {
    live: CacheIndex<Policies<E>>,
}

/// A policy and its bindings.
pub struct Hook<E> {
    /// The policy.
    pub policy: Arc<Policy<E>>,
    /// The bindings of the policy.
    pub bindings: Vec<Arc<Binding>>,
}

/// A compiled policy.
pub struct Policy<E> {
    /// The policy's name.
    pub name: String,
    /// Its `matchConstraints`.
    pub constraints: Constraints,
    /// Its `paramKind`.
    pub params: Option<ParamKind>,
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub again: bool,
    /// Its compiled expressions.
    pub compiled: E,
}

/// A policy binding.
pub struct Binding {
    /// The binding's name.
    pub name: String,
    /// The name of the policy.
    pub policy: String,
    /// `matchResources`, which narrow the policy's constraints; `None` matches all of them.
    pub constraints: Option<Constraints>,
    /// Its `paramRef`.
    pub params: Option<Value>,
    /// Its `validationActions`.
    pub actions: Vec<String>,
}

/// Match criteria of a policy (`matchConstraints`) or binding (`matchResources`).
pub struct Constraints {
    rules: Vec<Value>,
    excludes: Vec<Value>,
    equivalent: bool,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

impl Constraints {
    fn of(resources: &Value) -> Self {
        let selector = |field: &str| {
            let selector = meta::value_at(resources, &[field]).cloned().unwrap_or_else(|| serde_json::json!({}));
            LabelSelector::from_object(&selector).map_err(|error| error.to_string())
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
    pub async fn about(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
    ) -> Result<Option<Invocation>, Status> {
        let asked = Asked {
            rules: (!self.rules.is_empty()).then_some(&self.rules),
            excludes: &self.excludes,
            equivalent: self.equivalent,
            namespaces: &self.namespaces,
            objects: &self.objects,
        };
        asked.about(attributes, object).await
    }
}

impl Binding {
    fn of(object: &Value) -> Self {
        let actions = meta::list_at(object, &["spec", "validationActions"]);
        Self {
            name: meta::name(object).to_owned(),
            policy: meta::string_at(object, &["spec", "policyName"]).to_owned(),
            constraints: meta::value_at(object, &["spec", "matchResources"]).map(Constraints::of),
            params: meta::value_at(object, &["spec", "paramRef"]).cloned(),
            actions: actions.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// Whether the binding's `matchResources` select a request that matches its policy.
    pub async fn is_about(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<bool, Status> {
        match &self.constraints {
            None => Ok(true),
            Some(constraints) => Ok(constraints.about(attributes, object).await?.is_some()),
        }
    }
}

impl<E: Send + Sync + 'static> Source<E> {
    /// Indexes policies and bindings; `resources` names them in that order.
    pub fn new(parts: &PluginInit<'_>, resources: [&'static str; 2], compile: fn(&Value) -> E) -> Result<Self, String> {
        let row = |name: &str| loopback::find_resource(GROUP, "v1", name).map_err(|status| status.message);
        let rows = [row(resources[0])?, row(resources[1])?];
        let view = Policies {
            compile,
            resource: resources[0],
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            hooks: Arc::default(),
        };
        let live = CacheIndex::new(parts.cache, &rows, view).map_err(|error| error.to_string())?;
        Ok(Self { live })
    }

    /// Whether no policy has a binding.
    pub fn is_empty(&self) -> bool {
        self.live.read(|policies| policies.hooks.is_empty())
    }

    /// Returns all policies with their bindings.
    pub fn hooks(&self) -> Arc<Vec<Hook<E>>> {
        self.live.read(|policies| policies.hooks.clone())
    }
}

struct Policies<E> {
    compile: fn(&Value) -> E,
    resource: &'static str,
    policies: BTreeMap<String, Arc<Policy<E>>>,
    bindings: BTreeMap<String, Arc<Binding>>,
    hooks: Arc<Vec<Hook<E>>>,
}

impl<E: Send + Sync + 'static> Indexer for Policies<E> {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let name = place.name.to_owned();
        if place.resource.name != self.resource {
            self.bindings.insert(name, Arc::new(Binding::of(object)));
            return;
        }
        let policy = Policy {
            name: name.clone(),
            constraints: Constraints::of(&object["spec"]["matchConstraints"]),
            params: ParamKind::of(object),
            ignores_failure: meta::string_at(object, &["spec", "failurePolicy"]) == "Ignore",
            again: meta::string_at(object, &["spec", "reinvocationPolicy"]) == "IfNeeded",
            compiled: (self.compile)(object),
        };
        self.policies.insert(name, Arc::new(policy));
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        if place.resource.name == self.resource {
            self.policies.remove(place.name);
        } else {
            self.bindings.remove(place.name);
        }
    }

    fn clear(&mut self) {
        self.policies.clear();
        self.bindings.clear();
    }

    fn rebuild(&mut self) {
        let bound = |policy: &Arc<Policy<E>>| {
            let bindings = self.bindings.values().filter(|binding| binding.policy == policy.name).cloned();
            let bindings: Vec<Arc<Binding>> = bindings.collect();
            (!bindings.is_empty()).then(|| Hook { policy: policy.clone(), bindings })
        };
        self.hooks = Arc::new(self.policies.values().filter_map(bound).collect());
    }
}
