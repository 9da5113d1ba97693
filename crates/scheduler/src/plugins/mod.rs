//! The rules by which nodes are rejected and rated: each a small file, all of them in one table.

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
    queue::Event,
};

/// A rule. Every method has a default that says nothing.
pub(crate) trait Plugin: Sync {
    /// Asked once per pod, before any node: a reason not to place it anywhere.
    fn admit(&self, _pod: &PodInfo) -> Result<(), String> {
        Ok(())
    }

    /// The reasons why this node cannot take the pod, as upstream words them.
    fn filter(&self, _pod: &PodInfo, _node: &NodeInfo) -> Result<(), Vec<String>> {
        Ok(())
    }

    /// What may make a node acceptable that [`Plugin::filter`] rejected.
    fn helped_by(&self) -> Vec<Event> {
        vec![Event::Node]
    }

    /// How well this node suits the pod. Called for acceptable nodes, if the weight is not zero.
    fn score(&self, _pod: &PodInfo, _node: &NodeInfo) -> i64 {
        0
    }

    /// How scores of this plug-in compare.
    fn normalize(&self) -> Normalize {
        Normalize::AsIs
    }

    /// How much its score counts.
    fn weight(&self) -> i64 {
        0
    }
}

/// How raw scores become scores between zero and a hundred.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Normalize {
    /// They are already.
    AsIs,
    /// The highest becomes a hundred.
    MoreIsBetter,
    /// The highest becomes zero, zero a hundred.
    FewerIsBetter,
}

/// Every rule, in the order in which nodes are asked.
pub(crate) static PLUGINS: [&dyn Plugin; 10] = [
    &unsupported::Unsupported,
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

    /// Whether the plug-in accepts the pod on the node (an empty string), or its reasons.
    pub(crate) fn check(plugin: &dyn Plugin, a_pod: Value, a_node: Value, expected: &str) {
        let reasons = plugin.filter(&pod(a_pod.clone()), &node(a_node.clone())).err().unwrap_or_default();
        assert_eq!(reasons.join("; "), expected, "{a_pod} on {a_node}");
    }
}
