//! NodeUnschedulable: rejects cordoned nodes unless the pod tolerates the taint.

use super::{SchedulerPlugin, taint_toleration::tolerates_taint};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct NodeUnschedulable;

impl SchedulerPlugin for NodeUnschedulable {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let cordoned = node.node.as_ref().and_then(|node| node.spec.as_ref()?.unschedulable) == Some(true);
        if cordoned && !tolerates_taint(&pod.pod, "node.kubernetes.io/unschedulable", "", "NoSchedule") {
            return Err(vec!["node(s) were unschedulable".into()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests::check, *};

    #[test]
    fn cordoned_node_requires_a_toleration() {
        let cordoned = json!({"spec": {"unschedulable": true}});
        check(&NodeUnschedulable, json!({}), json!({}), "");
        check(&NodeUnschedulable, json!({}), cordoned.clone(), "node(s) were unschedulable");
        let tolerant =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
        check(&NodeUnschedulable, tolerant, cordoned, "");
    }
}
