//! NamespaceLifecycle: rejects objects in missing namespaces, new objects in terminating namespaces, and the deletion
//! of system namespaces.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, NamespaceIndex, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "NamespaceLifecycle",
    enabled_by_default: true,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create, Operation::Update, Operation::Delete])],
    construct: |init| Ok(Box::new(NamespaceLifecycle(NamespaceIndex::new(init, NAMESPACES)?))),
};

/// System namespaces, which cannot be deleted.
const IMMORTAL_NAMESPACES: &[&str] = &["default", "kube-system", "kube-public"];

const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

/// The plug-in, with an index of the existing namespaces.
struct NamespaceLifecycle(NamespaceIndex);

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
        if attributes.operation == Operation::Update && self.0.contains("", name) {
            return Ok(());
        }
        let Some(namespace) = attributes.get_object(NAMESPACES, "", name).await? else {
            return Err(Status::not_found(apiserver_core::loopback::find_resource("", "v1", "namespaces")?, name));
        };
        let ending = meta::string_at(&namespace, &["status", "phase"]) == "Terminating";
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
