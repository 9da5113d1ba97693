//! NamespaceAutoProvision makes the namespaces that new objects want to live in; NamespaceExists only wants them to be there.

use api::{Value, status::Status};
use apiserver_core::{
    loopback,
    loopback::{Place, System},
};
use async_trait::async_trait;
use serde_json::json;

use crate::{About, Attributes, Operation, Plugin, Row};

/// Makes them.
pub const AUTO_PROVISION: Row = Row {
    name: "NamespaceAutoProvision",
    on: false,
    about: &[About::everything(&[Operation::Create])],
    make: |_| Ok(Box::new(AutoProvision)),
};
/// Wants them.
pub const EXISTS: Row = Row {
    name: "NamespaceExists",
    on: false,
    about: &[About::everything(&[Operation::Create, Operation::Update, Operation::Delete])],
    make: |_| Ok(Box::new(Exists)),
};

const NAMESPACES: (&str, &str, &str) = ("", "v1", "namespaces");

struct AutoProvision;
struct Exists;

fn lives_in_one(attributes: &Attributes<'_>) -> bool {
    !attributes.namespace().is_empty() && !attributes.is_of("", "namespaces")
}

#[async_trait]
impl Plugin for AutoProvision {
    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        lives_in_one(attributes) && !attributes.dry_run
    }

    async fn admit(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let name = attributes.namespace();
        if attributes.find(NAMESPACES, "", name).await?.is_some() {
            return Ok(());
        }
        let place = Place { resource: loopback::resource("", "v1", "namespaces")?, namespace: "", name };
        let namespace = json!({"metadata": {"name": name}});
        match System::new(attributes.registry).create(place, &namespace).await {
            Err(status) if status.reason != "AlreadyExists" => Err(attributes.forbidden(object, status.message)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Plugin for Exists {
    fn concerns(&self, attributes: &Attributes<'_>) -> bool {
        lives_in_one(attributes)
    }

    async fn validate(&self, attributes: &Attributes<'_>, _: &Value) -> Result<(), Status> {
        let namespaces = loopback::resource("", "v1", "namespaces")?;
        attributes.registry.read_object(namespaces, "", attributes.namespace()).await.map(|_| ())
    }
}
