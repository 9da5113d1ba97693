//! Initializers: adds pending initializers to new objects, and lets only the first pending one act on them.
//!
//! An initializer's user needs the verb `initialize` on the object's resource, and on
//! `initializers.admissionregistration.k8s.io` with the name of the first pending initializer. It may change the
//! object, remove its own name from the list, and reject the object by setting a result.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    Value, meta,
    status::Status,
    validate::{FieldError, names},
};
use apiserver_core::{
    attributes::ResourceAttributes,
    cache_index::{CacheIndex, Indexer},
    initializers, loopback,
    loopback::ObjectKey,
};
use async_trait::async_trait;
use authz::Authorizers;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginError, PluginInit, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "Initializers",
    enabled_by_default: false,
    rules: &[ResourceRule { resource: ("*", "*"), subresources: &[""], operations: Operation::WRITES }],
    construct: |init| Initializers::new(init).map(|plugin| Box::new(plugin) as Box<dyn Plugin>),
};

const GROUP: &str = "admissionregistration.k8s.io";
const FIELD: &str = "metadata.initializers";
const MIRROR: &str = "kubernetes.io/config.mirror";

struct Initializers {
    configured: CacheIndex<InitializerIndex>,
    authorizers: Arc<Authorizers>,
}

impl Initializers {
    fn new(init: &PluginInit<'_>) -> Result<Self, PluginError> {
        if !initializers::is_enabled() {
            return Err("there are no initializers without --enable-initializers".into());
        }
        let resource = loopback::find_resource(GROUP, "v1alpha1", "initializerconfigurations")?;
        let configured = CacheIndex::new(init.cache, &[resource], InitializerIndex::default())?;
        Ok(Self { configured, authorizers: init.authorizers.clone() })
    }
}

#[async_trait]
impl Plugin for Initializers {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        // Writes of the loopback client are exempt.
        attributes.user().name != loopback::USER_NAME
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        match attributes.old {
            None => self.admit_create(attributes, object).await,
            Some(old) => self.admit_update(attributes, old, object).await,
        }
    }
}

impl Initializers {
    /// Sets the pending initializers of a new object; a list in the request requires the verb `initialize`.
    async fn admit_create(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        if initializer_list(object).is_some() {
            self.authorize_initialize(attributes, object, "create with initializers denied").await?;
            drop_empty_initializers(object);
            return validate_initializers(attributes, object);
        }
        if attributes.targets_resource("", "pods")
            && meta::value_at(object, &["metadata", "annotations", MIRROR]).is_some()
        {
            // A mirror pod already runs.
            return Ok(());
        }
        let pending = self.configured.read(|configured| configured.matching_initializers(attributes));
        if !pending.is_empty() {
            let pending: Vec<Value> = pending.iter().map(|name| json!({"name": name})).collect();
            meta::metadata_mut(object).insert("initializers".into(), json!({"pending": pending}));
        }
        Ok(())
    }

    /// Checks an update: while an object is pending, only the first initializer may change it.
    async fn admit_update(
        &self,
        attributes: &AdmissionAttributes<'_>,
        old: &Value,
        object: &mut Value,
    ) -> Result<(), Status> {
        drop_empty_initializers(object);
        let (Some(before), after) = (initializer_list(old), initializer_list(object)) else {
            let done = "field is immutable once initialization has completed";
            return match initializer_list(object) {
                None => Ok(()),
                Some(_) => Err(new_invalid(attributes, object, FieldError::invalid(FIELD, Value::Null, done))),
            };
        };
        validate_transition(before, after).map_err(|error| new_invalid(attributes, object, error))?;
        self.authorize_initialize(attributes, object, "update to uninitialized resource denied").await?;
        match pending_names(before).first() {
            Some(first) => self.authorize_first_initializer(attributes, object, first).await,
            None => Ok(()),
        }
    }

    async fn authorize_initialize(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        denied: &str,
    ) -> Result<(), Status> {
        let descriptor = attributes.resource();
        let resource = ResourceAttributes {
            group: descriptor.group,
            version: descriptor.version,
            resource: descriptor.name,
            namespace: attributes.namespace(),
            name: attributes.object_name(object),
            ..Default::default()
        };
        self.authorize_verb(attributes, object, resource, denied).await
    }

    async fn authorize_first_initializer(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        first: &str,
    ) -> Result<(), Status> {
        let resource = ResourceAttributes {
            group: GROUP,
            version: "v1alpha1",
            resource: "initializers",
            name: first,
            ..Default::default()
        };
        self.authorize_verb(attributes, object, resource, &format!("the initializer {first:?} is first")).await
    }

    async fn authorize_verb(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        resource: ResourceAttributes<'_>,
        denied: &str,
    ) -> Result<(), Status> {
        let decision = attributes.authorize_user(&self.authorizers, "initialize", resource).await;
        if decision.is_allowed() {
            return Ok(());
        }
        Err(attributes.new_forbidden(object, format!("{denied}: {}", decision.reason())))
    }
}

fn initializer_list(object: &Value) -> Option<&Value> {
    meta::value_at(object, &["metadata", "initializers"]).filter(|list| list.is_object())
}

fn pending_names(list: &Value) -> Vec<&str> {
    meta::list_at(list, &["pending"]).iter().map(|entry| meta::string_at(entry, &["name"])).collect()
}

fn initialization_result(list: &Value) -> Option<&Value> {
    meta::value_at(list, &["result"]).filter(|result| result.is_object())
}

/// Removes an empty initializer list.
fn drop_empty_initializers(object: &mut Value) {
    if initializer_list(object)
        .is_none_or(|list| pending_names(list).is_empty() && initialization_result(list).is_none())
    {
        meta::metadata_mut(object).remove("initializers");
    }
}

fn new_invalid(attributes: &AdmissionAttributes<'_>, object: &Value, error: FieldError) -> Status {
    Status::invalid_object(attributes.resource(), attributes.object_name(object), &[error])
}

/// Validates an initializer list in a create request: qualified names, and a result only with status `Failure`.
fn validate_initializers(attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
    let Some(list) = initializer_list(object) else { return Ok(()) };
    let mut errors = Vec::new();
    for (at, name) in pending_names(list).into_iter().enumerate() {
        let field = format!("{FIELD}.pending[{at}].name");
        let faults = names::check_dns_subdomain(name);
        if !faults.is_empty() {
            errors.push(FieldError::invalid(&field, name, faults.join(",")));
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(&field, name, why));
        }
    }
    errors.extend(initialization_result(list).and_then(validate_result));
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid_object(attributes.resource(), attributes.object_name(object), &errors))
}

fn validate_result(result: &Value) -> Option<FieldError> {
    let status = meta::string_at(result, &["status"]);
    (status != "Failure").then(|| FieldError::invalid(format!("{FIELD}.result.status"), status, "must be 'Failure'"))
}

/// Validates the transition of a pending list: the first initializer may keep it, remove itself, or reject the object.
fn validate_transition(before: &Value, after: Option<&Value>) -> Result<(), FieldError> {
    let nothing = json!({});
    let after = after.unwrap_or(&nothing);
    if let Some(result) = initialization_result(before) {
        let same = initialization_result(after) == Some(result);
        let given = initialization_result(after).cloned().unwrap_or_default();
        return if same {
            Ok(())
        } else {
            Err(FieldError::invalid(format!("{FIELD}.result"), given, "field is immutable"))
        };
    }
    if let Some(error) = initialization_result(after).and_then(validate_result) {
        return Err(error);
    }
    let (old, new) = (pending_names(before), pending_names(after));
    if new == old || new == old[old.len().min(1)..] || initialization_result(after).is_some() && new.is_empty() {
        return Ok(());
    }
    let why = "only the first initializer may be removed, and none added";
    Err(FieldError::invalid(format!("{FIELD}.pending"), json!(new), why))
}

/// The initializers of all configurations; they run in the order of the configuration names.
#[derive(Default)]
struct InitializerIndex(BTreeMap<String, Vec<ConfiguredInitializer>>);

struct ConfiguredInitializer {
    name: String,
    rules: Vec<[Vec<String>; 3]>,
}

impl InitializerIndex {
    /// Returns the names of the initializers whose rules match the created object.
    fn matching_initializers(&self, attributes: &AdmissionAttributes<'_>) -> Vec<String> {
        let descriptor = attributes.resource();
        let about = [descriptor.group, descriptor.version, descriptor.name];
        let mut found: Vec<String> = Vec::new();
        for initializer in self.0.values().flatten().filter(|initializer| initializer.matches_resource(&about)) {
            if !found.contains(&initializer.name) {
                found.push(initializer.name.clone());
            }
        }
        found
    }
}

impl ConfiguredInitializer {
    fn matches_resource(&self, about: &[&str; 3]) -> bool {
        let includes = |list: &Vec<String>, one: &str| list.iter().any(|known| known == "*" || known == one);
        self.rules.iter().any(|rule| rule.iter().zip(about).all(|(list, one)| includes(list, one)))
    }
}

impl Indexer for InitializerIndex {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        let texts = |value: &Value, name: &str| -> Vec<String> {
            meta::list_at(value, &[name]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let rule = |rule: &Value| ["apiGroups", "apiVersions", "resources"].map(|name| texts(rule, name));
        let initializer = |entry: &Value| ConfiguredInitializer {
            name: meta::string_at(entry, &["name"]).to_owned(),
            rules: meta::list_at(entry, &["rules"]).iter().map(rule).collect(),
        };
        let list = meta::list_at(object, &["initializers"]).iter().map(initializer).collect();
        self.0.insert(key.name.to_owned(), list);
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        self.0.remove(key.name);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
