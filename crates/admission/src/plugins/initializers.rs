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
    attributes::AttributesTarget,
    cache_index::{CacheIndex, Indexer},
    initializers, loopback,
    loopback::ObjectKey,
};
use async_trait::async_trait;
use authz::Authorizers;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, PluginInit, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "Initializers",
    on: false,
    about: &[ResourceRule {
        resource: ("*", "*"),
        subresources: &[""],
        operations: &[Operation::Create, Operation::Update],
    }],
    make: |parts| Initializers::new(parts).map(|plugin| Box::new(plugin) as Box<dyn Plugin>),
};

const GROUP: &str = "admissionregistration.k8s.io";
const FIELD: &str = "metadata.initializers";
const MIRROR: &str = "kubernetes.io/config.mirror";

struct Initializers {
    configured: CacheIndex<Configured>,
    authorizers: Arc<Authorizers>,
}

impl Initializers {
    fn new(parts: &PluginInit<'_>) -> Result<Self, String> {
        if !initializers::is_enabled() {
            return Err("there are no initializers without --enable-initializers".into());
        }
        let resource =
            loopback::find_resource(GROUP, "v1alpha1", "initializerconfigurations").map_err(|it| it.message)?;
        let configured = CacheIndex::new(parts.cache, &[resource], Configured::default());
        let configured = configured.map_err(|error| error.to_string())?;
        Ok(Self { configured, authorizers: parts.authorizers.clone() })
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
            None => self.begin(attributes, object).await,
            Some(old) => self.go_on(attributes, old, object).await,
        }
    }
}

impl Initializers {
    /// Sets the pending initializers of a new object; a list in the request requires the verb `initialize`.
    async fn begin(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        if list_of(object).is_some() {
            self.may_initialize(attributes, object, "create with initializers denied").await?;
            simplify(object);
            return is_valid(attributes, object);
        }
        if attributes.is_of("", "pods") && meta::value_at(object, &["metadata", "annotations", MIRROR]).is_some() {
            // A mirror pod already runs.
            return Ok(());
        }
        let pending = self.configured.read(|configured| configured.of(attributes));
        if !pending.is_empty() {
            let pending: Vec<Value> = pending.iter().map(|name| json!({"name": name})).collect();
            meta::metadata_mut(object).insert("initializers".into(), json!({"pending": pending}));
        }
        Ok(())
    }

    /// Checks an update: while an object is pending, only the first initializer may change it.
    async fn go_on(&self, attributes: &AdmissionAttributes<'_>, old: &Value, object: &mut Value) -> Result<(), Status> {
        simplify(object);
        let (Some(before), after) = (list_of(old), list_of(object)) else {
            let done = "field is immutable once initialization has completed";
            return match list_of(object) {
                None => Ok(()),
                Some(_) => Err(invalid(attributes, object, FieldError::invalid(FIELD, Value::Null, done))),
            };
        };
        may_become(before, after).map_err(|error| invalid(attributes, object, error))?;
        self.may_initialize(attributes, object, "update to uninitialized resource denied").await?;
        match names_of(before).first() {
            Some(first) => self.is_first(attributes, object, first).await,
            None => Ok(()),
        }
    }

    async fn may_initialize(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        denied: &str,
    ) -> Result<(), Status> {
        let row = attributes.resource();
        let resource = apiserver_core::attributes::ResourceAttributes {
            group: row.group,
            version: row.version,
            resource: row.name,
            namespace: attributes.namespace(),
            name: attributes.name(object),
            ..Default::default()
        };
        self.may(attributes, object, resource, denied).await
    }

    async fn is_first(&self, attributes: &AdmissionAttributes<'_>, object: &Value, first: &str) -> Result<(), Status> {
        let resource = apiserver_core::attributes::ResourceAttributes {
            group: GROUP,
            version: "v1alpha1",
            resource: "initializers",
            name: first,
            ..Default::default()
        };
        self.may(attributes, object, resource, &format!("the initializer {first:?} is first")).await
    }

    async fn may(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &Value,
        resource: apiserver_core::attributes::ResourceAttributes<'_>,
        denied: &str,
    ) -> Result<(), Status> {
        let asked = AttributesTarget::Resource(resource);
        let verdict = self
            .authorizers
            .authorize(&apiserver_core::attributes::Attributes {
                user: attributes.user(),
                verb: "initialize",
                target: asked,
            })
            .await;
        if verdict.is_allowed() {
            return Ok(());
        }
        Err(attributes.forbidden(object, format!("{denied}: {}", verdict.reason())))
    }
}

fn list_of(object: &Value) -> Option<&Value> {
    meta::value_at(object, &["metadata", "initializers"]).filter(|list| list.is_object())
}

fn names_of(list: &Value) -> Vec<&str> {
    meta::list_at(list, &["pending"]).iter().map(|entry| meta::string_at(entry, &["name"])).collect()
}

fn result_of(list: &Value) -> Option<&Value> {
    meta::value_at(list, &["result"]).filter(|result| result.is_object())
}

/// Removes an empty initializer list.
fn simplify(object: &mut Value) {
    if list_of(object).is_none_or(|list| names_of(list).is_empty() && result_of(list).is_none()) {
        meta::metadata_mut(object).remove("initializers");
    }
}

fn invalid(attributes: &AdmissionAttributes<'_>, object: &Value, error: FieldError) -> Status {
    Status::invalid_object(attributes.resource(), attributes.name(object), &[error])
}

/// Validates an initializer list in a create request: qualified names, and a result only with status `Failure`.
fn is_valid(attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
    let Some(list) = list_of(object) else { return Ok(()) };
    let mut errors = Vec::new();
    for (at, name) in names_of(list).into_iter().enumerate() {
        let field = format!("{FIELD}.pending[{at}].name");
        let faults = names::subdomain(name);
        if !faults.is_empty() {
            errors.push(FieldError::invalid(&field, name, faults.join(",")));
        } else if name.split('.').count() < 3 {
            let why = "should be a domain with at least three segments separated by dots";
            errors.push(FieldError::invalid(&field, name, why));
        }
    }
    errors.extend(result_of(list).and_then(wrong_result));
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid_object(attributes.resource(), attributes.name(object), &errors))
}

fn wrong_result(result: &Value) -> Option<FieldError> {
    let status = meta::string_at(result, &["status"]);
    (status != "Failure").then(|| FieldError::invalid(format!("{FIELD}.result.status"), status, "must be 'Failure'"))
}

/// Validates the transition of a pending list: the first initializer may keep it, remove itself, or reject the object.
fn may_become(before: &Value, after: Option<&Value>) -> Result<(), FieldError> {
    let nothing = json!({});
    let after = after.unwrap_or(&nothing);
    if let Some(result) = result_of(before) {
        let same = result_of(after) == Some(result);
        let given = result_of(after).cloned().unwrap_or_default();
        return if same {
            Ok(())
        } else {
            Err(FieldError::invalid(format!("{FIELD}.result"), given, "field is immutable"))
        };
    }
    if let Some(error) = result_of(after).and_then(wrong_result) {
        return Err(error);
    }
    let (old, new) = (names_of(before), names_of(after));
    if new == old || new == old[old.len().min(1)..] || result_of(after).is_some() && new.is_empty() {
        return Ok(());
    }
    let why = "only the first initializer may be removed, and none added";
    Err(FieldError::invalid(format!("{FIELD}.pending"), json!(new), why))
}

/// The initializers of all configurations; they run in the order of the configuration names.
#[derive(Default)]
struct Configured(BTreeMap<String, Vec<Initializer>>);

struct Initializer {
    name: String,
    rules: Vec<[Vec<String>; 3]>,
}

impl Configured {
    /// Returns the names of the initializers whose rules match the created object.
    fn of(&self, attributes: &AdmissionAttributes<'_>) -> Vec<String> {
        let row = attributes.resource();
        let about = [row.group, row.version, row.name];
        let mut found: Vec<String> = Vec::new();
        for initializer in self.0.values().flatten().filter(|initializer| initializer.is_about(&about)) {
            if !found.contains(&initializer.name) {
                found.push(initializer.name.clone());
            }
        }
        found
    }
}

impl Initializer {
    fn is_about(&self, about: &[&str; 3]) -> bool {
        let includes = |list: &Vec<String>, one: &str| list.iter().any(|known| known == "*" || known == one);
        self.rules.iter().any(|rule| rule.iter().zip(about).all(|(list, one)| includes(list, one)))
    }
}

impl Indexer for Configured {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let texts = |value: &Value, name: &str| -> Vec<String> {
            meta::list_at(value, &[name]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let rule = |rule: &Value| ["apiGroups", "apiVersions", "resources"].map(|name| texts(rule, name));
        let initializer = |entry: &Value| Initializer {
            name: meta::string_at(entry, &["name"]).to_owned(),
            rules: meta::list_at(entry, &["rules"]).iter().map(rule).collect(),
        };
        let list = meta::list_at(object, &["initializers"]).iter().map(initializer).collect();
        self.0.insert(place.name.to_owned(), list);
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.0.remove(place.name);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
