//! Workloads and nodes, where they differ.

use api::Value;

use super::{
    Strategy, specification,
    subresource::{keep, with_status},
};

/// Deployments: a changed annotation is a new generation too.
pub struct Deployment;

impl Strategy for Deployment {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
            || object["metadata"].get("annotations") != current["metadata"].get("annotations")
    }

    /// Labels are not the status's to change.
    fn through(&self, _subresource: &str, object: Value, current: &Value) -> Value {
        let mut changed = with_status(object, current);
        keep(&mut changed["metadata"], &current["metadata"], &["labels"]);
        changed
    }
}

/// Nodes: a kubelet registers with its status.
pub struct KeepsStatus;

impl Strategy for KeepsStatus {
    fn keeps_status_on_create(&self) -> bool {
        true
    }
}
