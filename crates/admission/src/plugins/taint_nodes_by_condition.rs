//! TaintNodesByCondition: adds the not-ready taint to new nodes.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "TaintNodesByCondition",
    enabled_by_default: true,
    rules: &[ResourceRule::for_object("", "nodes", &[Operation::Create])],
    construct: |_| Ok(Box::new(TaintNodesByCondition)),
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const NO_SCHEDULE: &str = "NoSchedule";

struct TaintNodesByCondition;

#[async_trait]
impl Plugin for TaintNodesByCondition {
    async fn admit(&self, _: &AdmissionAttributes<'_>, node: &mut Value) -> Result<(), Status> {
        let taints = meta::field_mut(node, "spec").entry("taints").or_insert_with(|| json!([]));
        let Some(taints) = taints.as_array_mut() else { return Ok(()) };
        if !taints.iter().any(|taint| taint["key"] == NOT_READY && taint["effect"] == NO_SCHEDULE) {
            taints.push(json!({"key": NOT_READY, "effect": NO_SCHEDULE}));
        }
        Ok(())
    }
}
