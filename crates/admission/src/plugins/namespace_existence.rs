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

/// The descriptor of NamespaceAutoProvision.
pub const AUTO_PROVISION: PluginDescriptor = PluginDescriptor {
    name: "NamespaceAutoProvision",
    on: false,
    about: &[ResourceRule::everything(&[Operation::Create])],
    make: |_| Ok(Box::new(AutoProvision)),
};
/// The descriptor of NamespaceExists.
pub const EXISTS: PluginDescriptor = PluginDescriptor {
    name: "NamespaceExists",
    on: false,
    about: &[ResourceRule::everything(&[Operation::Create, Operation::Update, Operation::Delete])],
    make: |_| Ok(Box::new(Exists)),
};

const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

struct AutoProvision;
struct Exists;

fn lives_in_one(attributes: &AdmissionAttributes<'_>) -> bool {
    !attributes.namespace().is_empty() && !attributes.is_of("", "namespaces")
}

#[async_trait]
impl Plugin for AutoProvision {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        lives_in_one(attributes) && !attributes.dry_run
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let name = attributes.namespace();
        if attributes.find(NAMESPACES, "", name).await?.is_some() {
            return Ok(());
        }
        let place = ObjectKey { resource: loopback::find_resource("", "v1", "namespaces")?, namespace: "", name };
        let namespace = json!({"metadata": {"name": name}});
        match LoopbackClient::new(attributes.registry).create_object(place, &namespace).await {
            Err(status) if status.reason != "AlreadyExists" => Err(attributes.forbidden(object, status.message)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Plugin for Exists {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        lives_in_one(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, _: &Value) -> Result<(), Status> {
        let namespaces = loopback::find_resource("", "v1", "namespaces")?;
        attributes.registry.read_object(namespaces, "", attributes.namespace()).await.map(|_| ())
    }
}
