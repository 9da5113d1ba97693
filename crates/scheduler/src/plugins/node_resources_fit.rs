//! NodeResourcesFit: rejects nodes without the requested resources.

use super::SchedulerPlugin;
use crate::{
    cache::{NodeInfo, PodInfo},
    scheduling_queue::ClusterEvent,
};

pub(super) struct NodeResourcesFit;

impl SchedulerPlugin for NodeResourcesFit {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let mut reasons = Vec::new();
        let running = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        if running >= node.allocatable.get("pods") {
            reasons.push("Too many pods".into());
        }
        for (name, requested) in pod.requests.iter() {
            if requested > 0 && requested > node.allocatable.get(name) - node.requested.get(name) {
                reasons.push(format!("Insufficient {name}"));
            }
        }
        if reasons.is_empty() { Ok(()) } else { Err(reasons) }
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::NodeChanged, ClusterEvent::PodDeleted]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests, *};

    fn requests(list: Value) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": list}}]}})
    }

    #[test]
    fn insufficient_resources_are_listed() {
        let allocatable = json!({"cpu": "2", "memory": "1Gi", "pods": "2", "example.com/gpu": "1"});
        let node = json!({"status": {"allocatable": allocatable}});
        let check = |list: Value, used: Value, expected: &str| {
            let mut node = tests::node(node.clone());
            node.add_pod("1".into(), tests::pod(requests(used)));
            let reasons = NodeResourcesFit.filter_node(&tests::pod(requests(list)), &node).err().unwrap_or_default();
            assert_eq!(reasons.join("; "), expected);
        };
        check(json!({"cpu": "2"}), json!({}), "");
        check(json!({"cpu": "1"}), json!({"cpu": "1001m"}), "Insufficient cpu");
        check(json!({"cpu": "999m"}), json!({"cpu": "1001m"}), "");
        check(json!({"cpu": "3", "memory": "2Gi"}), json!({}), "Insufficient cpu; Insufficient memory");
        check(json!({"example.com/gpu": "1"}), json!({"example.com/gpu": "1"}), "Insufficient example.com/gpu");
        check(json!({"example.com/fpga": "1"}), json!({}), "Insufficient example.com/fpga");
        check(json!({"ephemeral-storage": "1"}), json!({}), "Insufficient ephemeral-storage");
        check(json!({"example.com/fpga": "0"}), json!({}), "");
    }

    #[test]
    fn pod_count_is_limited() {
        let node = json!({"status": {"allocatable": {"pods": "0"}}});
        tests::check(&NodeResourcesFit, json!({}), node, "Too many pods");
        tests::check(&NodeResourcesFit, json!({}), json!({"status": {"allocatable": {"pods": "1"}}}), "");
    }
}
