//! Decisions about daemon pods: which to create and delete on every node, and the steps of a rolling update.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Node};

use super::{
    placement::{NodePlacement, node_placement},
    template::{self, REVISION_LABEL, is_pod_updated, min_ready_seconds, pod_label},
};
use crate::{
    pod_availability::{is_pod_ready, pod_phase, time_until_available},
    pod_view::PodView,
};

/// Daemon pods by the name of their node.
pub(super) type PodsByNode = BTreeMap<String, Vec<Arc<PodView>>>;

/// Nodes that need a pod and pods to delete.
#[derive(Debug, Default)]
pub(super) struct DaemonPlan {
    pub(super) create: Vec<String>,
    pub(super) delete: Vec<Arc<PodView>>,
    /// Failed pods and their nodes: deleted with back-off.
    pub(super) failed: Vec<(String, Arc<PodView>)>,
    /// Succeeded pods and their nodes, to be deleted.
    pub(super) succeeded: Vec<(String, Arc<PodView>)>,
}

/// Whether a pod has been ready for the set's `minReadySeconds`.
pub(super) fn is_available(set: &DaemonSet, pod: &PodView, now: Timestamp) -> bool {
    time_until_available(pod, min_ready_seconds(set), now) == Some(Duration::ZERO)
}

fn is_terminating(pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the scheduler has bound the pod.
fn is_scheduled(pod: &PodView) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

/// Orders scheduled pods first, then by age and name.
pub(super) fn compare_by_age(a: &PodView, b: &PodView) -> Ordering {
    let created = |pod: &PodView| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    is_scheduled(b)
        .cmp(&is_scheduled(a))
        .then_with(|| created(a).cmp(&created(b)))
        .then_with(|| a.metadata.name.cmp(&b.metadata.name))
}

/// Plans the pods of all nodes, and of nodes that are gone.
pub(super) fn plan_nodes(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &PodsByNode,
    hash: &str,
    now: Timestamp,
) -> DaemonPlan {
    let (mut plan, mut orphaned) = (DaemonPlan::default(), pods.clone());
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or("");
        orphaned.remove(name);
        plan_node(set, node, pods.get(name).map(Vec::as_slice), hash, now, &mut plan);
    }
    // Pods that were not scheduled to a node that is gone never are, and the pod garbage collector leaves them alone.
    plan.delete.extend(orphaned.into_values().flatten().filter(|pod| !is_scheduled(pod)));
    plan
}

fn plan_node(
    set: &DaemonSet,
    node: &Node,
    pods: Option<&[Arc<PodView>]>,
    hash: &str,
    now: Timestamp,
    plan: &mut DaemonPlan,
) {
    let (name, placement) = (node.metadata.name.clone().unwrap_or_default(), node_placement(set, node));
    let alive = pods.into_iter().flatten().filter(|pod| !is_terminating(pod)).cloned();
    match placement {
        NodePlacement::Run if pods.is_none() => plan.create.push(name),
        NodePlacement::Exclude => plan.delete.extend(alive),
        _ => {
            let mut running = Vec::new();
            for pod in alive {
                match pod_phase(&pod) {
                    "Failed" => plan.failed.push((name.clone(), pod)),
                    "Succeeded" => plan.succeeded.push((name.clone(), pod)),
                    _ => running.push(pod),
                }
            }
            running.sort_by(|a, b| compare_by_age(a, b));
            if !template::allows_surge(set) {
                plan.delete.extend(running.into_iter().skip(1));
            } else if running.is_empty() && placement == NodePlacement::Run {
                plan.create.push(name);
            } else if running.len() > 1 {
                plan.delete.extend(excess_surge_pods(set, running, hash, now));
            }
        }
    }
}

/// Returns the pods beside the oldest new and the oldest old pod, and the old one if it is not ready or the new one is
/// available.
fn excess_surge_pods(
    set: &DaemonSet,
    oldest_first: Vec<Arc<PodView>>,
    hash: &str,
    now: Timestamp,
) -> Vec<Arc<PodView>> {
    let (mut new, mut old, mut excess) = (None, None, Vec::new());
    for pod in oldest_first {
        let kept = if pod_label(&pod, REVISION_LABEL) == Some(hash) { &mut new } else { &mut old };
        match kept {
            None => *kept = Some(pod),
            Some(_) => excess.push(pod),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!is_pod_ready(&old) || is_available(set, &new, now))
    {
        excess.push(old);
    }
    excess
}

/// The pods of a node during an update.
struct NodePods<'a> {
    new: Option<&'a Arc<PodView>>,
    old: Option<&'a Arc<PodView>>,
}

/// Returns the new and the old pod of a node; `None` if there are several of one kind, which [`plan_nodes`] removes.
fn updated_pods<'a>(set: &DaemonSet, pods: &'a [Arc<PodView>], hash: &str) -> Option<NodePods<'a>> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|pod| !is_terminating(pod)) {
        let slot = if is_pod_updated(set, pod, hash) { &mut new } else { &mut old };
        if slot.replace(pod).is_some() {
            return None;
        }
    }
    Some(NodePods { new, old })
}

/// Plans the next step of a rolling update.
pub(super) fn plan_rolling_update(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &PodsByNode,
    hash: &str,
    now: Timestamp,
) -> DaemonPlan {
    let mut pods = pods.clone();
    let placements: BTreeMap<&str, NodePlacement> =
        nodes.iter().map(|node| (node.metadata.name.as_deref().unwrap_or(""), node_placement(set, node))).collect();
    let wanted = placements.iter().filter(|(_, placement)| **placement == NodePlacement::Run).map(|(name, _)| *name);
    let mut desired = 0;
    for name in wanted {
        desired += 1;
        pods.entry(name.to_owned()).or_default();
    }
    let (max_surge, max_unavailable) = (template::max_surge(set, desired), template::max_unavailable(set, desired));
    if max_surge == 0 {
        let max_unavailable = if desired > 0 { max_unavailable.max(1) } else { max_unavailable };
        return plan_replacements(set, &pods, hash, max_unavailable, now);
    }
    SurgePlanner { set, placements, hash, now }.plan_surge(&pods, max_surge, desired)
}

/// Deletes old pods that are unavailable, and available ones as far as `max_unavailable` allows.
fn plan_replacements(
    set: &DaemonSet,
    pods: &PodsByNode,
    hash: &str,
    max_unavailable: i32,
    now: Timestamp,
) -> DaemonPlan {
    let (mut unavailable, mut candidates, mut plan) = (0, Vec::new(), DaemonPlan::default());
    for on_node in pods.values() {
        match updated_pods(set, on_node, hash) {
            Some(NodePods { new: None, old: Some(old) }) if is_available(set, old, now) => candidates.push(old.clone()),
            Some(NodePods { new: None, old: Some(old) }) => {
                plan.delete.push(old.clone());
                unavailable += 1;
            }
            Some(NodePods { new: Some(new), old: None }) if is_available(set, new, now) => {}
            _ => unavailable += 1,
        }
    }
    candidates.truncate(usize::try_from(max_unavailable - unavailable).unwrap_or(0));
    plan.delete.extend(candidates);
    plan
}

/// Plans an update that starts new pods beside old ones.
struct SurgePlanner<'a> {
    set: &'a DaemonSet,
    placements: BTreeMap<&'a str, NodePlacement>,
    hash: &'a str,
    now: Timestamp,
}

impl SurgePlanner<'_> {
    /// Starts new pods on nodes whose old pod is unavailable, and on others as far as `max_surge` allows. Old pods go
    /// when their new one is available; those of excluded nodes when enough pods are available elsewhere.
    fn plan_surge(&self, pods: &PodsByNode, max_surge: i32, desired: i32) -> DaemonPlan {
        let (mut surging, mut available, mut plan) = (0, 0, DaemonPlan::default());
        let (mut candidates, mut excluded) = (Vec::new(), Vec::new());
        for (name, on_node) in pods {
            let Some(NodePods { new, old }) = updated_pods(self.set, on_node, self.hash) else {
                surging += 1;
                continue;
            };
            available += i32::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = old else { continue };
            let runs = self.placements.get(name.as_str()) == Some(&NodePlacement::Run);
            match new {
                Some(new) if self.is_available(new) => plan.delete.push(old.clone()),
                Some(_) => surging += 1,
                None if !self.is_available(old) && runs => plan.create.push(name.clone()),
                None if !self.is_available(old) => plan.delete.push(old.clone()),
                None if runs => candidates.push(name.clone()),
                None => excluded.push(old.clone()),
            }
        }
        excluded.truncate(usize::try_from(available - desired).unwrap_or(0));
        plan.delete.extend(excluded);
        candidates.truncate(usize::try_from(max_surge - surging).unwrap_or(0));
        plan.create.extend(candidates);
        plan
    }

    fn is_available(&self, pod: &PodView) -> bool {
        is_available(self.set, pod, self.now)
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
