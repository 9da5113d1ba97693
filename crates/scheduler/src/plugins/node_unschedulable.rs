//! Rejects nodes that are cordoned, unless the pod tolerates that.

use super::{Plugin, taint_toleration::tolerates};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let cordoned = node.node.as_ref().and_then(|node| node.spec.as_ref()?.unschedulable) == Some(true);
        if cordoned && !tolerates(&pod.pod, "node.kubernetes.io/unschedulable", "", "NoSchedule") {
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
    fn cordons() {
        let cordoned = json!({"spec": {"unschedulable": true}});
        check(&NodeUnschedulable, json!({}), json!({}), "");
        check(&NodeUnschedulable, json!({}), cordoned.clone(), "node(s) were unschedulable");
        let tolerant =
            json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}});
        check(&NodeUnschedulable, tolerant, cordoned, "");
    }
}
