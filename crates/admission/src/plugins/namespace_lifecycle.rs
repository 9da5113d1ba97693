//! NamespaceLifecycle: rejects objects in missing namespaces, new objects in terminating namespaces, and the deletion
//! of system namespaces.

use std::collections::HashSet;

use api::{Value, meta, status::Status};
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback::find_resource,
    object_key::ObjectKey,
};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "NamespaceLifecycle",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create, Operation::Update, Operation::Delete])],
    construct: |init| {
        let namespaces = find_resource("", "v1", "namespaces")?;
        let active = CacheIndex::new(init.cache, &[namespaces], ActiveNamespaces::default())?;
        Ok(Box::new(NamespaceLifecycle(active)))
    },
};

/// System namespaces, which cannot be deleted.
const IMMORTAL_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

/// The plug-in. Writes of namespaces wait until the index has them, so a namespace whose deletion was acknowledged is
/// never active.
struct NamespaceLifecycle(CacheIndex<ActiveNamespaces>);

/// Names of the namespaces that are not terminating.
#[derive(Default)]
struct ActiveNamespaces(HashSet<String>);

impl Indexer for ActiveNamespaces {
    fn insert_object(&mut self, key: ObjectKey<'_>, namespace: &Value) {
        if is_terminating(namespace) {
            self.0.remove(key.name);
        } else {
            self.0.insert(key.name.to_owned());
        }
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        self.0.remove(key.name);
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

fn is_terminating(namespace: &Value) -> bool {
    meta::string_at(namespace, &["status", "phase"]) == "Terminating"
}

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        let is_namespace = attributes.targets_resource("", "namespaces");
        match attributes.operation {
            Operation::Delete => is_namespace && IMMORTAL_NAMESPACES.contains(&attributes.target.name.as_str()),
            // Access reviews may name namespaces that do not exist.
            _ => {
                !is_namespace
                    && !attributes.namespace().is_empty()
                    && !attributes.targets_resource("authorization.k8s.io", "localsubjectaccessreviews")
            }
        }
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        if attributes.operation == Operation::Delete {
            return Err(attributes.new_forbidden(object, "this namespace may not be deleted"));
        }
        let name = attributes.namespace();
        if self.0.read(|active| active.0.contains(name)) {
            return Ok(());
        }
        let Some(namespace) = attributes.get_object(NAMESPACES, "", name).await? else {
            return Err(Status::not_found(find_resource("", "v1", "namespaces")?, name));
        };
        let ending = is_terminating(&namespace);
        if attributes.operation == Operation::Create && ending {
            return Err(new_terminating_error(attributes, object));
        }
        Ok(())
    }
}

fn new_terminating_error(attributes: &AdmissionAttributes<'_>, object: &Value) -> Status {
    let name = attributes.namespace();
    let why = format!("unable to create new content in namespace {name} because it is being terminated");
    let mut status = attributes.new_forbidden(object, why);
    if let Some(details) = &mut status.details {
        details["causes"] = json!([{"reason": "NamespaceTerminating",
            "message": format!("namespace {name} is being terminated"), "field": "metadata.namespace"}]);
    }
    status
}
