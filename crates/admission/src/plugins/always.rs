//! AlwaysAdmit and AlwaysDeny: admit or reject every request.

use api::{Value, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

const DENY_MESSAGE: &str = "admission control is denying all modifications";

pub const ALWAYS_ADMIT: PluginDescriptor = PluginDescriptor {
    name: "AlwaysAdmit",
    enabled_by_default: false,
    rules: &[],
    construct: |_| Ok(Box::new(AlwaysAdmit)),
};
pub const ALWAYS_DENY: PluginDescriptor = PluginDescriptor {
    name: "AlwaysDeny",
    enabled_by_default: false,
    rules: &[ResourceRule::for_all_resources(Operation::ALL)],
    construct: |_| Ok(Box::new(AlwaysDeny)),
};

struct AlwaysAdmit;
impl Plugin for AlwaysAdmit {}

struct AlwaysDeny;

#[async_trait]
impl Plugin for AlwaysDeny {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        Err(attributes.new_forbidden(object, DENY_MESSAGE))
    }
}
