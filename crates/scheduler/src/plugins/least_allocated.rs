//! NodeResourcesFit's LeastAllocated scoring: prefers nodes with free CPU and memory.

use super::SchedulerPlugin;
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct LeastAllocated;

impl SchedulerPlugin for LeastAllocated {
    fn score_node(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let free = |name: &str| {
            let (all, used) =
                (node.allocatable.get(name), node.requested_for_score.get(name) + pod.requests_for_score.get(name));
            if all <= 0 || used > all { 0 } else { i128::from(all - used) * 100 / i128::from(all) }
        };
        i64::try_from((free("cpu") + free("memory")) / 2).unwrap_or(0)
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
    fn score_is_the_free_fraction() {
        let check = |cpu: &str, memory: &str, expected: i64| {
            let node = tests::node(json!({"status": {"allocatable": {"cpu": "4", "memory": "1000Mi"}}}));
            let requests = json!({"cpu": cpu, "memory": memory});
            let pod = tests::pod(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}));
            assert_eq!(LeastAllocated.score_node(&pod, &node), expected);
        };
        check("1", "250Mi", 75);
        check("4", "0", 50);
        check("8", "1000Mi", 0);
    }
}
