//! Nodes: one whose lease is no longer renewed is reported as unknown, and taints follow its conditions.
//!
//! Renewals are timed by when they are seen, not by the node's clock. Pods are left alone.

mod taints;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use client::{ApiErrorExt, Change, Informer, Queue, Recorder, Requeue};
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

use crate::Context;

/// A node that shows no sign of life for this long is unknown.
const GRACE_PERIOD: Duration = Duration::from_secs(40);
const LEASES: &str = "kube-node-lease";
/// The conditions that only the node itself can know.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

struct Controller {
    client: Client,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    queue: Queue<String>,
    recorder: Recorder,
    /// When each node was last seen alive, on this process's clock.
    alive: Mutex<HashMap<String, Instant>>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let leases = Api::namespaced(context.informers.client().clone(), LEASES);
    let controller = Arc::new(Controller {
        nodes: context.informers.of(),
        leases: Informer::start(leases, watcher::Config::default(), context.shutdown.clone()),
        queue: Queue::new(),
        recorder: Recorder::new(context.client.clone(), "node-controller", None),
        alive: Mutex::default(),
        client: context.client,
    });
    controller.watch();
    controller.nodes.synced().await;
    controller.leases.synced().await;
    let worker = controller.clone();
    let sync = move |name: String| {
        let controller = worker.clone();
        async move { controller.sync(&name).await }
    };
    controller.queue.run(2, context.shutdown, sync).await;
}

impl Controller {
    fn watch(self: &Arc<Self>) {
        let this = self.clone();
        self.leases.on_change(move |change| this.lease_changed(change));
        let this = self.clone();
        self.nodes.on_change(move |change| this.node_changed(change));
    }

    /// A renewal only moves the time at which the node's timer finds it dead.
    fn lease_changed(&self, change: &Change<Lease>) {
        let renewed = |lease: &Lease| lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let is_renewal = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => renewed(old) != renewed(new),
            Change::Deleted(_) => false,
        };
        if is_renewal {
            self.alive().insert(change.object().name_any(), Instant::now());
        }
    }

    fn node_changed(&self, change: &Change<Node>) {
        let name = change.object().name_any();
        match change {
            Change::Added(_) => {
                self.alive().entry(name.clone()).or_insert_with(Instant::now);
            }
            Change::Updated { old, new } if heartbeat(old) != heartbeat(new) && !is_ours(new) => {
                self.alive().insert(name.clone(), Instant::now());
            }
            Change::Updated { .. } => {}
            Change::Deleted(_) => {
                self.alive().remove(&name);
                return;
            }
        }
        self.queue.add(name);
    }

    async fn sync(&self, name: &str) -> Result<Requeue, kube::Error> {
        let Some(node) = self.nodes.get("", name) else { return Ok(Requeue::No) };
        let seen = *self.alive().entry(name.into()).or_insert_with(Instant::now);
        let silent = seen.elapsed();
        let synced = match silent >= GRACE_PERIOD {
            true => match self.mark_unknown(&node).await {
                Ok(node) => self.sync_taints(&node).await,
                Err(error) => Err(error),
            },
            false => self.sync_taints(&node).await,
        };
        match synced {
            // A dead node's timer ends; its next sign of life is a change of the node.
            Ok(()) if silent >= GRACE_PERIOD => Ok(Requeue::No),
            Ok(()) => Ok(Requeue::After(GRACE_PERIOD - silent)),
            Err(error) if error.is_conflict() => Ok(Requeue::Retry),
            Err(error) if error.is_not_found() => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }

    async fn mark_unknown(&self, node: &Node) -> Result<Node, kube::Error> {
        let mut update = node.clone();
        if !make_unknown(&mut update, Timestamp::now()) {
            return Ok(update);
        }
        let message = format!("Node {} status is now: NodeNotReady", node.name_any());
        self.recorder.normal(node.object_ref(&()), "NodeNotReady", message);
        let api: Api<Node> = Api::all(self.client.clone());
        api.replace_status(&node.name_any(), &PostParams::default(), &update).await
    }

    async fn sync_taints(&self, node: &Node) -> Result<(), kube::Error> {
        let Some(taints) = taints::changed(node, Timestamp::now()) else { return Ok(()) };
        let mut update = node.clone();
        update.spec.get_or_insert_default().taints = (!taints.is_empty()).then_some(taints);
        let api: Api<Node> = Api::all(self.client.clone());
        api.replace(&node.name_any(), &PostParams::default(), &update).await.map(drop)
    }

    fn alive(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.alive.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The node's own report of being ready or not; `Unknown` is what this loop wrote.
fn heartbeat(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

fn is_ours(node: &Node) -> bool {
    heartbeat(node).is_some_and(|ready| ready.status == "Unknown")
}

/// Makes what the node reported unknown; says whether that changed something.
fn make_unknown(node: &mut Node, now: Timestamp) -> bool {
    let created = node.metadata.creation_timestamp.clone();
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    let mut changed = false;
    for type_ in REPORTED {
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
    fn silence_makes_conditions_unknown_once() {
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}]);
        let mut node: Node = serde_json::from_value(json!({"status": {"conditions": ready}})).unwrap();
        assert!(make_unknown(&mut node, Timestamp::UNIX_EPOCH));
        let conditions = node.status.clone().unwrap().conditions.unwrap();
        let told: Vec<_> =
            conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_deref().unwrap())).collect();
        assert_eq!(told[0], ("Ready", "Unknown", "NodeStatusUnknown"));
        assert_eq!(told[3], ("PIDPressure", "Unknown", "NodeStatusNeverUpdated"));
        assert_eq!(conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
        assert!(conditions[0].last_heartbeat_time.is_some());
        assert!(!make_unknown(&mut node, Timestamp::UNIX_EPOCH));
    }
}
