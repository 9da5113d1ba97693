//! Scheduler plug-ins: one file each, registered in [`PLUGINS`].

mod balanced_allocation;
mod least_allocated;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod selector_spread;
mod taint_toleration;
mod unsupported;

use crate::{
    cache::{NodeInfo, PodInfo},
    scheduling_queue::ClusterEvent,
};

/// Reason for which no node can take a pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PodRejection(pub(crate) String);

/// A scheduler plug-in. Every extension point has a neutral default.
pub(crate) trait SchedulerPlugin: Sync {
    /// Rejects a pod for all nodes, once per cycle.
    fn pre_filter(&self, _pod: &PodInfo) -> Result<(), PodRejection> {
        Ok(())
    }

    /// Rejects a node for the pod, with upstream's reasons.
    fn filter_node(&self, _pod: &PodInfo, _node: &NodeInfo) -> Result<(), Vec<String>> {
        Ok(())
    }

    /// Events that may make a node pass that [`SchedulerPlugin::filter_node`] rejected.
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::NodeChanged]
    }

    /// Scores a node that passed all filters; unused if the weight is zero.
    fn score_node(&self, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// Normalization of this plug-in's scores.
    fn score_normalization(&self) -> ScoreNormalization {
        ScoreNormalization::Unchanged
    }

    /// Weight of this plug-in's score.
    fn score_weight(&self) -> i64 {
        0
    }
}

/// Mapping of raw scores to zero through a hundred.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScoreNormalization {
    /// Scores are in range already.
    Unchanged,
    /// The highest raw score becomes a hundred.
    Proportional,
    /// The highest raw score becomes zero, zero becomes a hundred.
    Reversed,
}

/// All plug-ins, in filter order.
pub(crate) static PLUGINS: [&dyn SchedulerPlugin; 10] = [
    &unsupported::UnsupportedFeatures,
    &node_unschedulable::NodeUnschedulable,
    &node_name::NodeName,
    &taint_toleration::TaintToleration,
    &node_affinity::NodeAffinity,
    &node_ports::NodePorts,
    &node_resources_fit::NodeResourcesFit,
    &least_allocated::LeastAllocated,
    &balanced_allocation::BalancedAllocation,
    &selector_spread::SelectorSpread,
];

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use serde_json::Value;

    use super::*;

    pub(crate) fn pod(pod: Value) -> PodInfo {
        let mut pod = pod;
        if pod["spec"]["containers"].is_null() {
            pod["spec"]["containers"] = serde_json::json!([]);
        }
        PodInfo::new(Arc::new(serde_json::from_value(pod).unwrap()))
    }

    pub(crate) fn node(node: Value) -> NodeInfo {
        let mut info = NodeInfo::default();
        info.set_node(Arc::new(serde_json::from_value(node).unwrap()));
        info
    }

    /// Checks the plug-in's reasons for the pod on the node; empty if accepted.
    pub(crate) fn check(plugin: &dyn SchedulerPlugin, a_pod: Value, a_node: Value, expected: &str) {
        let reasons = plugin.filter_node(&pod(a_pod.clone()), &node(a_node.clone())).err().unwrap_or_default();
        assert_eq!(reasons.join("; "), expected, "{a_pod} on {a_node}");
    }
}
