//! node-lifecycle-controller: marks nodes unknown whose lease expires, and taints nodes by their conditions.
//!
//! Renewals are timed by local observation, independent of the node's clock. Pods are not evicted.

mod taints;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams, runtime::watcher};
use tokio::time::Instant;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
};

/// Time without a heartbeat after which a node is unknown.
const NODE_MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(40);
const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Conditions that only the kubelet reports.
const KUBELET_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

struct NodeLifecycleController {
    client: Client,
    nodes: SharedInformer<Node>,
    leases: SharedInformer<Lease>,
    recorder: EventRecorder,
    /// Last heartbeat of each node by the local clock.
    last_seen: Mutex<HashMap<String, Instant>>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let leases = Api::namespaced(context.informers.client().clone(), NODE_LEASE_NAMESPACE);
    let build = |_| NodeLifecycleController {
        nodes: context.informers.informer_for(),
        leases: SharedInformer::start(leases, watcher::Config::default(), context.shutdown.clone()),
        recorder: EventRecorder::new(context.client.clone(), "node-controller", None),
        last_seen: Mutex::default(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for NodeLifecycleController {
    type Key = String;
    type Error = kube::Error;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        watches.add(&self.leases, |this, event, _| this.handle_lease_event(event));
        watches.add(&self.nodes, Self::handle_node_event);
    }

    async fn sync(&self, name: &String) -> Result<RequeueAction, kube::Error> {
        self.sync_node(name).await
    }
}

impl NodeLifecycleController {
    /// Records a lease renewal; the node's pending requeue picks it up.
    fn handle_lease_event(&self, event: &ResourceEvent<Lease>) {
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let is_renewal = match event {
            ResourceEvent::Added(_) => true,
            ResourceEvent::Updated { old, new } => renewed(old) != renewed(new),
            ResourceEvent::Deleted(_) => false,
        };
        if is_renewal {
            self.lock_last_seen().insert(event.object().name_any(), Instant::now());
        }
    }

    fn handle_node_event(&self, event: &ResourceEvent<Node>, queue: &WorkQueue<String>) {
        let name = event.object().name_any();
        match event {
            ResourceEvent::Added(_) => {
                self.lock_last_seen().entry(name.clone()).or_insert_with(Instant::now);
            }
            ResourceEvent::Updated { old, new }
                if ready_condition(old) != ready_condition(new) && !is_marked_unknown(new) =>
            {
                self.lock_last_seen().insert(name.clone(), Instant::now());
            }
            ResourceEvent::Updated { .. } => {}
            ResourceEvent::Deleted(_) => {
                self.lock_last_seen().remove(&name);
                return;
            }
        }
        queue.add(name);
    }

    async fn sync_node(&self, name: &str) -> Result<RequeueAction, kube::Error> {
        let Some(node) = self.nodes.get("", name) else { return Ok(RequeueAction::AwaitChange) };
        let seen = *self.lock_last_seen().entry(name.into()).or_insert_with(Instant::now);
        let silent = seen.elapsed();
        let synced = match silent >= NODE_MONITOR_GRACE_PERIOD {
            true => match self.mark_unknown(&node).await {
                Ok(node) => self.sync_taints(&node).await,
                Err(error) => Err(error),
            },
            false => self.sync_taints(&node).await,
        };
        match synced {
            // An unknown node has no timer; its next heartbeat is an event.
            Ok(()) if silent >= NODE_MONITOR_GRACE_PERIOD => Ok(RequeueAction::AwaitChange),
            Ok(()) => Ok(RequeueAction::After(NODE_MONITOR_GRACE_PERIOD - silent)),
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }

    async fn mark_unknown(&self, node: &Node) -> Result<Node, kube::Error> {
        let mut update = node.clone();
        if !set_conditions_unknown(&mut update, Timestamp::now()) {
            return Ok(update);
        }
        let message = format!("Node {} status is now: NodeNotReady", node.name_any());
        self.recorder.record_normal(node.object_ref(&()), "NodeNotReady", message);
        let api: Api<Node> = Api::all(self.client.clone());
        api.replace_status(&node.name_any(), &PostParams::default(), &update).await
    }

    async fn sync_taints(&self, node: &Node) -> Result<(), kube::Error> {
        let Some(taints) = taints::updated_taints(node, Timestamp::now()) else { return Ok(()) };
        let mut update = node.clone();
        update.spec.get_or_insert_default().taints = (!taints.is_empty()).then_some(taints);
        let api: Api<Node> = Api::all(self.client.clone());
        api.replace(&node.name_any(), &PostParams::default(), &update).await.map(drop)
    }

    fn lock_last_seen(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.last_seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the condition `Ready`.
fn ready_condition(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

fn is_marked_unknown(node: &Node) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "Unknown")
}

/// Sets the kubelet's conditions to `Unknown`; returns whether one changed.
fn set_conditions_unknown(node: &mut Node, now: Timestamp) -> bool {
    let created = node.metadata.creation_timestamp.clone();
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut changed = false;
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
            Some(current) if current.status == "Unknown" => continue,
            Some(current) => {
                let heartbeat = current.last_heartbeat_time.clone();
                *current = unknown("NodeStatusUnknown", "Kubelet stopped posting node status.", heartbeat);
            }
            None => {
                conditions.push(unknown(
                    "NodeStatusNeverUpdated",
                    "Kubelet never posted node status.",
                    created.clone(),
                ));
            }
        }
        changed = true;
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_heartbeat_sets_conditions_unknown_once() {
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}]);
        let mut node: Node = serde_json::from_value(json!({"status": {"conditions": ready}})).unwrap();
        assert!(set_conditions_unknown(&mut node, Timestamp::UNIX_EPOCH));
        let conditions = node.status.clone().unwrap().conditions.unwrap();
        let reported: Vec<_> =
            conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref().unwrap())).collect();
        assert_eq!(reported[0], ("Ready", "Unknown", "NodeStatusUnknown"));
        assert_eq!(reported[3], ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"));
        assert_eq!(conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
        assert!(conditions[0].last_heartbeat_time.is_some());
        assert!(!set_conditions_unknown(&mut node, Timestamp::UNIX_EPOCH));
    }
}
