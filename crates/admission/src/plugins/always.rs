//! AlwaysAdmit and AlwaysDeny: admit or reject every request.

use api::{Value, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
const WHY: &str = "admission control is denying all modifications";

/// The descriptor of AlwaysAdmit.
pub const ADMIT: PluginDescriptor =
    PluginDescriptor { name: "AlwaysAdmit", on: false, about: &[], make: |_| Ok(Box::new(AlwaysAdmit)) };
/// The descriptor of AlwaysDeny.
pub const DENY: PluginDescriptor = PluginDescriptor {
    name: "AlwaysDeny",
    on: false,
    about: &[ResourceRule::everything(ALL)],
    make: |_| Ok(Box::new(AlwaysDeny)),
};

struct AlwaysAdmit;
impl Plugin for AlwaysAdmit {}

struct AlwaysDeny;

#[async_trait]
impl Plugin for AlwaysDeny {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        Err(attributes.forbidden(object, WHY))
    }
}
