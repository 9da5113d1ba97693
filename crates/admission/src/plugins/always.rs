//! AlwaysAdmit and AlwaysDeny: a chain without and with an end.

use api::{Value, status::Status};
use async_trait::async_trait;

use crate::{About, Attributes, Operation, Plugin, Row};

const ALL: &[Operation] = &[Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];
const WHY: &str = "admission control is denying all modifications";

/// Says yes.
pub const ADMIT: Row = Row { name: "AlwaysAdmit", on: false, about: &[], make: |_| Ok(Box::new(AlwaysAdmit)) };
/// Says no.
pub const DENY: Row =
    Row { name: "AlwaysDeny", on: false, about: &[About::everything(ALL)], make: |_| Ok(Box::new(AlwaysDeny)) };

struct AlwaysAdmit;
impl Plugin for AlwaysAdmit {}

struct AlwaysDeny;

#[async_trait]
impl Plugin for AlwaysDeny {
    async fn admit(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        Err(attributes.forbidden(object, WHY))
    }
}
