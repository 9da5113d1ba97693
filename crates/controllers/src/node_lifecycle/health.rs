//! Heartbeats of nodes: when a node was last heard of, and the conditions of one that is silent.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{NodeLifecycleOptions, node_readiness::ready_condition};

/// Conditions that only the kubelet reports.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The last observation of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeHealth {
    /// Time of the last heartbeat by the local clock.
    pub(super) probed_at: Timestamp,
    /// The condition `Ready` as last observed.
    pub(super) ready: Option<NodeCondition>,
    /// Renewal of the lease that was last observed.
    renewed_at: Option<Timestamp>,
}

impl NodeHealth {
    /// Takes a node and the renewal of its lease into account.
    pub(super) fn observe(saved: Option<Self>, node: &Node, renewed_at: Option<Timestamp>, now: Timestamp) -> Self {
        let ready = ready_condition(node).cloned();
        let saved_renewal = saved.as_ref().and_then(|saved| saved.renewed_at);
        let fresh = |probed_at| Self { probed_at, ready: ready.clone(), renewed_at: None };
        let mut health = match (saved, &ready) {
            (None, None) => fresh(node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0)),
            (Some(saved), None) => Self { ready: None, ..saved },
            (None, Some(_)) => fresh(now),
            (Some(saved), Some(current)) => match &saved.ready {
                Some(before) if before.last_heartbeat_time == current.last_heartbeat_time => saved,
                _ => fresh(now),
            },
        };
        if renewed_at.is_some() && saved_renewal < renewed_at {
            health.renewed_at = renewed_at;
            health.probed_at = now;
        }
        health
    }

    /// Whether the node was silent for longer than its grace period.
    pub(super) fn is_silent(&self, node: &Node, now: Timestamp, options: &NodeLifecycleOptions) -> bool {
        let grace = match ready_condition(node) {
            Some(_) => options.monitor_grace_period,
            None => options.startup_grace_period,
        };
        Duration::try_from(now.duration_since(self.probed_at)).is_ok_and(|silence| silence > grace)
    }
}

/// Returns the status of the condition `Ready`; `Unknown` if it was never reported.
pub(super) fn ready_status(node: &Node) -> &str {
    ready_condition(node).map_or("Unknown", |ready| &ready.status)
}

/// Sets the kubelet's conditions to `Unknown`; returns whether `Ready` changed.
pub(super) fn set_conditions_unknown(node: &mut Node, now: Timestamp) -> bool {
    let created = node.metadata.creation_timestamp.clone();
    let observed = ready_condition(node).cloned();
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    for type_ in KUBELET_CONDITIONS {
        let unknown = |reason: &str, message: &str, heartbeat: Option<Time>| NodeCondition {
            type_: type_.into(),
            status: "Unknown".into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: heartbeat,
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            None => {
                conditions.push(unknown("NodeStatusNeverUpdated", "Kubelet never posted node status.", created.clone()))
            }
            Some(condition) if condition.status != "Unknown" => {
                let heartbeat = condition.last_heartbeat_time.clone();
                *condition = unknown("NodeStatusUnknown", "Kubelet stopped posting node status.", heartbeat);
            }
            Some(_) => {}
        }
    }
    ready_condition(node).cloned() != observed
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(conditions: Value) -> Node {
        let metadata = json!({"name": "n", "creationTimestamp": "1970-01-01T00:00:00Z"});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    fn ready(heartbeat: &str) -> Value {
        json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}])
    }

    #[test]
    fn heartbeats_are_new_statuses_and_lease_renewals() {
        let options = NodeLifecycleOptions::default();
        let old = node(ready("2026-01-01T00:00:00Z"));
        let health = NodeHealth::observe(None, &old, None, at(100));
        assert_eq!(health.probed_at, at(100));
        let health = NodeHealth::observe(Some(health), &old, None, at(140));
        assert_eq!(health.probed_at, at(100));
        assert!(!health.is_silent(&old, at(150), &options) && health.is_silent(&old, at(151), &options));
        let health = NodeHealth::observe(Some(health), &node(ready("2026-01-01T00:00:10Z")), None, at(150));
        assert_eq!(health.probed_at, at(150));
        let health = NodeHealth::observe(Some(health), &node(ready("2026-01-01T00:00:10Z")), Some(at(7)), at(160));
        assert_eq!(health.probed_at, at(160));
        let health = NodeHealth::observe(Some(health), &node(ready("2026-01-01T00:00:10Z")), Some(at(7)), at(170));
        assert_eq!(health.probed_at, at(160));
    }

    #[test]
    fn node_without_status_is_silent_after_the_startup_grace_period() {
        let (options, new) = (NodeLifecycleOptions::default(), node(json!([])));
        let health = NodeHealth::observe(None, &new, None, at(30));
        assert_eq!(health.probed_at, at(0));
        assert!(!health.is_silent(&new, at(60), &options) && health.is_silent(&new, at(61), &options));
    }

    #[test]
    fn silent_node_gets_unknown_conditions_once() {
        let mut silent =
            node(json!([{"type": "Ready", "status": "True"}, {"type": "MemoryPressure", "status": "Unknown"},
            {"type": "DiskPressure", "status": "False"}]));
        assert!(set_conditions_unknown(&mut silent, at(5)));
        let conditions = silent.status.clone().unwrap().conditions.unwrap();
        let reported: Vec<_> = conditions
            .iter()
            .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(reported[0], ("Ready", "Unknown", "NodeStatusUnknown"));
        assert_eq!(reported[1], ("MemoryPressure", "Unknown", ""));
        assert_eq!(reported[3], ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"));
        assert_eq!(conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
        assert!(!set_conditions_unknown(&mut silent, at(6)));
    }
}
