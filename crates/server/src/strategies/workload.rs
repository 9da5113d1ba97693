//! Workloads and nodes, where they differ.

use api::Value;

use super::{Strategy, specification};

/// Deployments: a changed annotation is a new generation too.
pub struct Deployment;

impl Strategy for Deployment {
    fn bumps_generation(&self, object: &Value, current: &Value) -> bool {
        specification(object) != specification(current)
            || object["metadata"].get("annotations") != current["metadata"].get("annotations")
    }
}

/// Nodes: a kubelet registers with its status.
pub struct KeepsStatus;

impl Strategy for KeepsStatus {
    fn keeps_status_on_create(&self) -> bool {
        true
    }
}

/// Priority classes: whatever changes in them, they stay what they were.
pub struct OneGeneration;

impl Strategy for OneGeneration {
    fn bumps_generation(&self, _: &Value, _: &Value) -> bool {
        false
    }
}
