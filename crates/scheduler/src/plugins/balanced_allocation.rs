//! NodeResourcesBalancedAllocation: prefers nodes whose CPU and memory usage is balanced.

use super::SchedulerPlugin;
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct BalancedAllocation;

impl SchedulerPlugin for BalancedAllocation {
    fn score_node(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let used = |name: &str| {
            let (all, used) = (node.allocatable.get(name), node.requested.get(name) + pod.requests.get(name));
            if all <= 0 { 1.0 } else { (used as f64 / all as f64).min(1.0) }
        };
        // The standard deviation of two values is half their difference.
        let deviation = (used("cpu") - used("memory")).abs() / 2.0;
        ((1.0 - deviation) * 100.0) as i64
    }

    fn score_weight(&self) -> i64 {
        1
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::tests, *};

    #[test]
    fn balanced_usage_scores_highest() {
        let check = |cpu: &str, memory: &str, expected: i64| {
            let node = tests::node(json!({"status": {"allocatable": {"cpu": "4", "memory": "1000Mi"}}}));
            let requests = json!({"cpu": cpu, "memory": memory});
            let pod = tests::pod(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}));
            assert_eq!(BalancedAllocation.score_node(&pod, &node), expected);
        };
        check("2", "500Mi", 100);
        check("4", "0", 50);
        check("2", "0", 75);
    }
}
