//! The periodic pass over all nodes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{Api, ResourceExt, api::PostParams};
use tokio::time::Instant;

use super::{
    NODE_LEASE_NAMESPACE, NodeLifecycleController,
    health::{NodeHealth, ready_status, set_conditions_unknown},
    taints::{NOT_READY_TAINT, TaintChange, UNREACHABLE_TAINT, has_no_execute_taint},
    zones::{ClusterChange, ZoneReadiness, zone_key},
};
use crate::{
    node_readiness::{is_node_ready, ready_condition},
    pod_node::pods_on_node,
};

/// Nodes that are examined at the same time.
const CONCURRENT_NODES: usize = 8;
/// Attempts to write the status of a silent node, and the delay between them.
const HEALTH_UPDATE_ATTEMPTS: usize = 5;
const HEALTH_RETRY_DELAY: Duration = Duration::from_millis(20);
const EXCLUDE_DISRUPTION_LABEL: &str = "node.kubernetes.io/exclude-disruption";

/// State of the pass that survives from one to the next.
#[derive(Default)]
struct MonitorState {
    /// Registered nodes with their uid.
    known: HashMap<String, String>,
    /// Nodes whose pods could not all be marked as not ready.
    retry: HashSet<String>,
}

/// A node after its examination.
struct ExaminedNode {
    node: Node,
    /// Status of `Ready` before the examination.
    observed: String,
}

impl NodeLifecycleController {
    /// Examines all nodes at intervals, and adds `NoExecute` taints as the zones' rates allow.
    pub(super) async fn monitor_nodes(self: &Arc<Self>) {
        let mut state = MonitorState::default();
        loop {
            self.examine_nodes(&mut state).await;
            let next = Instant::now() + self.options.monitor_period;
            loop {
                self.taint_due_nodes().await;
                let due = self.lock_zones().next_due(Instant::now()).map(|delay| Instant::now() + delay);
                tokio::time::sleep_until(due.unwrap_or(next).min(next)).await;
                if Instant::now() >= next {
                    break;
                }
            }
        }
    }

    async fn examine_nodes(&self, state: &mut MonitorState) {
        let nodes = self.nodes.list();
        self.register_nodes(state, &nodes).await;
        let inputs: Vec<(Arc<Node>, bool)> =
            nodes.iter().map(|node| (node.clone(), state.retry.contains(&node.name_any()))).collect();
        let examine = |(node, needs_retry): (Arc<Node>, bool)| async move {
            (node.name_any(), self.examine_node(&node, needs_retry).await)
        };
        let examined: Vec<_> = stream::iter(inputs).map(examine).buffer_unordered(CONCURRENT_NODES).collect().await;
        let mut readiness: BTreeMap<String, ZoneReadiness> = BTreeMap::new();
        for (name, result) in examined {
            let node = match result {
                Ok((node, pods_marked)) => {
                    match pods_marked {
                        true => state.retry.remove(&name),
                        false => state.retry.insert(name),
                    };
                    node
                }
                Err(error) => {
                    tracing::warn!(name, %error, "node lifecycle: health of node not updated, repeated in the next pass");
                    continue;
                }
            };
            if !node.labels().contains_key(EXCLUDE_DISRUPTION_LABEL) {
                let counts = readiness.entry(zone_key(&node)).or_default();
                match is_node_ready(&node) {
                    true => counts.ready += 1,
                    false => counts.not_ready += 1,
                }
            }
        }
        self.handle_disruption(&readiness, &nodes).await;
    }

    /// Records events about new and removed nodes.
    async fn register_nodes(&self, state: &mut MonitorState, nodes: &[Arc<Node>]) {
        for node in nodes {
            let (name, uid) = (node.name_any(), node.uid().unwrap_or_default());
            self.lock_zones().add_zone(&zone_key(node), &self.options);
            if state.known.insert(name.clone(), uid.clone()).is_none() {
                self.record_node_event(&name, &uid, "RegisteredNode", &format!("Registered Node {name} in Controller"));
                self.mark_reachable(node).await;
            }
        }
        let present: HashSet<String> = nodes.iter().map(|node| node.name_any()).collect();
        state.retry.retain(|name| present.contains(name));
        state.known.retain(|name, uid| {
            let is_present = present.contains(name);
            if !is_present {
                self.record_node_event(name, uid, "RemovingNode", &format!("Removing Node {name} from Controller"));
            }
            is_present
        });
    }

    /// Updates the health of a node and acts on it; returns the node and whether its pods are marked as they should be.
    async fn examine_node(&self, node: &Node, needs_retry: bool) -> Result<(Node, bool), kube::Error> {
        let ExaminedNode { node, observed } = self.update_health(node).await?;
        if ready_condition(&node).is_none() {
            return Ok((node, true));
        }
        let current = ready_status(&node).to_owned();
        self.update_no_execute(&node, &current).await;
        let went_silent = current != "True" && observed == "True";
        if went_silent {
            let name = node.name_any();
            let message = format!("Node {name} status is now: NodeNotReady");
            self.recorder.record_normal(
                node_reference(&name, &node.uid().unwrap_or_default()),
                "NodeNotReady",
                message,
            );
        }
        let is_marked = match went_silent || (needs_retry && observed != "True") {
            true => self.mark_pods_not_ready(&node.name_any()).await,
            false => true,
        };
        Ok((node, is_marked))
    }

    /// Observes heartbeats, and writes unknown conditions for a silent node.
    async fn update_health(&self, cached: &Node) -> Result<ExaminedNode, kube::Error> {
        let (api, name): (Api<Node>, _) = (Api::all(self.client.clone()), cached.name_any());
        let mut node = cached.clone();
        for attempt in 1.. {
            let now = Timestamp::now();
            let lease = self.leases.get(NODE_LEASE_NAMESPACE, &name);
            let renewed_at = lease.and_then(|lease| lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0));
            let observed = ready_status(&node).to_owned();
            let saved = self.lock_health().get(&name).cloned();
            let mut health = NodeHealth::observe(saved, &node, renewed_at, now);
            let update = health.is_silent(&node, now, &self.options) && set_conditions_unknown(&mut node, now);
            let written = match update {
                true => api.replace_status(&name, &PostParams::default(), &node).await.map(drop),
                false => Ok(()),
            };
            if written.is_ok() {
                health.ready = ready_condition(&node).cloned();
            }
            self.lock_health().insert(name.clone(), health);
            match written {
                Ok(()) => return Ok(ExaminedNode { node, observed }),
                Err(error) if attempt >= HEALTH_UPDATE_ATTEMPTS => return Err(error),
                Err(_) => tokio::time::sleep(HEALTH_RETRY_DELAY).await,
            }
            node = api.get(&name).await?;
        }
        Ok(ExaminedNode { observed: ready_status(&node).to_owned(), node })
    }

    /// Queues an unready node for its `NoExecute` taint, or exchanges the one it has at once.
    async fn update_no_execute(&self, node: &Node, status: &str) {
        let opposite = match status {
            "True" => return self.mark_reachable(node).await,
            "False" => UNREACHABLE_TAINT,
            _ => NOT_READY_TAINT,
        };
        if has_no_execute_taint(node, opposite) {
            self.change_taints_logged(node, &TaintChange::no_execute(status)).await;
        } else if TaintChange::no_execute(status).apply(node, Timestamp::now()).is_some() {
            self.lock_zones().queue_node(&zone_key(node), &node.name_any());
        }
    }

    async fn taint_due_nodes(&self) {
        let due = self.lock_zones().take_due_nodes(Instant::now());
        for name in due {
            let Some(node) = self.nodes.get("", &name) else { continue };
            let status = ready_status(&node);
            if status != "True" {
                self.change_taints_logged(&node, &TaintChange::no_execute(status)).await;
            }
        }
    }

    async fn mark_reachable(&self, node: &Node) {
        self.lock_zones().remove_node(&zone_key(node), &node.name_any());
        self.change_taints_logged(node, &TaintChange::no_execute("True")).await;
    }

    /// Changes taints; a failure is repeated in the next pass.
    async fn change_taints_logged(&self, node: &Node, change: &TaintChange) {
        if let Err(error) = self.change_taints(node, change).await {
            tracing::warn!(name = node.name_any(), %error, "node lifecycle: taints not changed, repeated in the next pass");
        }
    }

    /// Marks the pods of a node as not ready; returns whether all were.
    async fn mark_pods_not_ready(&self, node: &str) -> bool {
        let mut all = true;
        for pod in pods_on_node(&self.pods, node) {
            if let Err(error) = self.mark_pod_not_ready(&pod).await {
                tracing::debug!(node, pod = pod.name_any(), %error, "node lifecycle: pod not marked as not ready");
                all = false;
            }
        }
        all
    }

    async fn handle_disruption(&self, readiness: &BTreeMap<String, ZoneReadiness>, nodes: &[Arc<Node>]) {
        let change = self.lock_zones().handle_disruption(readiness, &self.options, Instant::now());
        match change {
            ClusterChange::None => {}
            ClusterChange::EnterDisruption => {
                tracing::info!("node lifecycle: no node is ready, evictions are stopped");
                for node in nodes {
                    self.mark_reachable(node).await;
                }
            }
            ClusterChange::ExitDisruption => {
                tracing::info!("node lifecycle: nodes are ready again, evictions are resumed");
                let now = Timestamp::now();
                self.lock_health().values_mut().for_each(|health| health.probed_at = now);
            }
        }
    }

    fn record_node_event(&self, name: &str, uid: &str, reason: &str, message: &str) {
        let message = format!("Node {name} event: {message}");
        self.recorder.record_normal(node_reference(name, uid), reason, message);
    }
}

fn node_reference(name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some(name.into()),
        uid: Some(uid.into()),
        ..Default::default()
    }
}
