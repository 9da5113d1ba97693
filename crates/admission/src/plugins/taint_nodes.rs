//! TaintNodesByCondition: a new node takes no pods until its conditions say that it is ready.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{About, Attributes, Operation, Plugin, Row};

/// The row of the table.
pub const ROW: Row = Row {
    name: "TaintNodesByCondition",
    on: true,
    about: &[About::object("", "nodes", &[Operation::Create])],
    make: |_| Ok(Box::new(TaintNodes)),
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

struct TaintNodes;

#[async_trait]
impl Plugin for TaintNodes {
    async fn admit(&self, _: &Attributes<'_>, node: &mut Value) -> Result<(), Status> {
        let taints = meta::field_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
        let Some(taints) = taints.as_array_mut() else { return Ok(()) };
        if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == NO_SCHEDULE) {
            taints.push(json!({"key": NOT_READY, "effect": NO_SCHEDULE}));
        }
        Ok(())
    }
}
