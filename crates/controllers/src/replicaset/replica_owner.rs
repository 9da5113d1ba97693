//! The kinds that the controller serves: ReplicaSet and ReplicationController.

use client::informer::CachedObject;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{
            PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
        },
    },
};
use kube::Resource;

use crate::controller_ref::SelectingController;

/// A kind that maintains a number of equal pods.
pub(super) trait ReplicaOwner:
    SelectingController + CachedObject + Resource<Scope = NamespaceResourceScope> + serde::Serialize
{
    /// The component of its events.
    const COMPONENT: &'static str;
    /// Whether its status has `terminatingReplicas`.
    const REPORTS_TERMINATING: bool;

    /// Returns `spec.replicas`.
    fn desired_replicas(&self) -> i32;
    /// Returns `spec.minReadySeconds`.
    fn min_ready_seconds(&self) -> i32;
    /// Returns `spec.template`.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// Returns the status in the form of a ReplicaSet's.
    fn replica_status(&self) -> ReplicaSetStatus;
    /// Replaces the status.
    fn set_replica_status(&mut self, status: ReplicaSetStatus);
}

impl ReplicaOwner for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const REPORTS_TERMINATING: bool = true;

    fn desired_replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn replica_status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn set_replica_status(&mut self, status: ReplicaSetStatus) {
        self.status = Some(status);
    }
}

impl ReplicaOwner for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const REPORTS_TERMINATING: bool = false;

    fn desired_replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn replica_status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let condition = |condition: ReplicationControllerCondition| ReplicaSetCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: condition.status,
            type_: condition.type_,
        };
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }
    }

    fn set_replica_status(&mut self, status: ReplicaSetStatus) {
        let condition = |condition: ReplicaSetCondition| ReplicationControllerCondition {
            last_transition_time: condition.last_transition_time,
            message: condition.message,
            reason: condition.reason,
            status: condition.status,
            type_: condition.type_,
        };
        self.status = Some(ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn status_of_a_replication_controller_survives_the_conversion() {
        let status = json!({"replicas": 3, "readyReplicas": 2, "availableReplicas": 1, "fullyLabeledReplicas": 3,
            "observedGeneration": 7, "conditions": [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                "message": "quota", "lastTransitionTime": "2030-01-01T00:00:00Z"}]});
        let controller: ReplicationController = serde_json::from_value(json!({"status": status})).unwrap();
        let mut copy = ReplicationController::default();
        copy.set_replica_status(controller.replica_status());
        assert_eq!(copy, controller);
    }
}
