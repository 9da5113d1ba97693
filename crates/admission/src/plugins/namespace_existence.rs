//! NamespaceAutoProvision creates missing namespaces of new objects; NamespaceExists rejects requests in missing
//! namespaces.

use api::{Value, status::Status};
use apiserver_core::{
    loopback,
    loopback::{LoopbackClient, ObjectKey},
};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const NAMESPACE_AUTO_PROVISION: PluginDescriptor = PluginDescriptor {
    name: "NamespaceAutoProvision",
    enabled_by_default: false,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create])],
    construct: |_| Ok(Box::new(NamespaceAutoProvision)),
};
pub const NAMESPACE_EXISTS: PluginDescriptor = PluginDescriptor {
    name: "NamespaceExists",
    enabled_by_default: false,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create, Operation::Update, Operation::Delete])],
    construct: |_| Ok(Box::new(NamespaceExists)),
};

const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

struct NamespaceAutoProvision;
struct NamespaceExists;

fn is_namespaced_request(attributes: &AdmissionAttributes<'_>) -> bool {
    !attributes.namespace().is_empty() && !attributes.targets_resource("", "namespaces")
}

#[async_trait]
impl Plugin for NamespaceAutoProvision {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        is_namespaced_request(attributes) && !attributes.dry_run
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let name = attributes.namespace();
        if attributes.get_object(NAMESPACES, "", name).await?.is_some() {
            return Ok(());
        }
        let key = ObjectKey { resource: loopback::find_resource("", "v1", "namespaces")?, namespace: "", name };
        let namespace = json!({"metadata": {"name": name}});
        match LoopbackClient::new(attributes.registry).create_object(key, &namespace).await {
            Err(status) if !status.is_already_exists() => Err(attributes.new_forbidden(object, status.message)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Plugin for NamespaceExists {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        is_namespaced_request(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, _: &Value) -> Result<(), Status> {
        let namespaces = loopback::find_resource("", "v1", "namespaces")?;
        attributes.registry.read_object(namespaces, "", attributes.namespace()).await.map(|_| ())
    }
}
