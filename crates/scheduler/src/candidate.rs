//! Candidates of preemption: nodes with the pods that must go, and the choice between them.

use std::{cmp::Reverse, sync::Arc};

use jiff::Timestamp;

use crate::views::pod_info::PodInfo;

/// A node with the pods that must go.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node.
    pub node: Arc<str>,
    /// The victims, the most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// Number of victims whose disruption budget is violated.
    pub violations: usize,
}

/// Sorts pods by priority, then by the time that they run, the most important first.
pub fn sort_by_importance(pods: &mut [Arc<PodInfo>]) {
    let now = Timestamp::now();
    pods.sort_by_key(|pod| (Reverse(pod.priority()), pod.start_time.unwrap_or(now)));
}

/// Chooses the candidate with the fewest violated budgets; then the one whose most important victim has the lowest
/// priority, the lowest sum of priorities, the fewest victims, and whose most important victims started last.
pub fn select_candidate(candidates: Vec<Candidate>) -> Option<Candidate> {
    let now = Timestamp::now();
    candidates.into_iter().min_by_key(|candidate| {
        let priorities = candidate.victims.iter().map(|pod| i64::from(pod.priority()));
        let highest = priorities.clone().next().unwrap_or(i64::MIN);
        let sum: i64 = priorities.clone().map(|priority| priority + i64::from(i32::MAX) + 1).sum();
        let greatest = priorities.max().unwrap_or(i64::MIN);
        let most_important = candidate.victims.iter().filter(|pod| i64::from(pod.priority()) == greatest);
        let earliest = most_important.map(|pod| pod.start_time.unwrap_or(now)).min().unwrap_or(now);
        (candidate.violations, highest, sum, candidate.victims.len(), Reverse(earliest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(node: &str, violations: usize, victims: &[(i32, &str)]) -> Candidate {
        let victims = victims.iter().map(|(priority, start)| {
            let pod =
                serde_json::json!({"spec": {"priority": priority, "containers": []}, "status": {"startTime": start}});
            Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap()))
        });
        Candidate { node: node.into(), victims: victims.collect(), violations }
    }

    fn check(candidates: &[Candidate], expected: &str) {
        let best = select_candidate(candidates.to_vec());
        assert_eq!(best.map(|best| best.node.to_string()).as_deref(), Some(expected));
    }

    #[test]
    fn the_cheapest_candidate_is_chosen() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        check(&[candidate("a", 1, &[(0, early)]), candidate("b", 0, &[(9, early)])], "b");
        check(&[candidate("a", 0, &[(5, early)]), candidate("b", 0, &[(4, early), (4, early)])], "b");
        check(&[candidate("a", 0, &[(5, early), (1, early)]), candidate("b", 0, &[(5, early)])], "b");
        check(&[candidate("a", 0, &[(5, early)]), candidate("b", 0, &[(5, late)])], "b");
        assert!(select_candidate(Vec::new()).is_none());
    }

    #[test]
    fn important_pods_come_first() {
        let mut pods =
            candidate("a", 0, &[(1, "2026-01-01T00:00:00Z"), (2, "2026-01-02T00:00:00Z"), (2, "2026-01-01T00:00:00Z")])
                .victims;
        sort_by_importance(&mut pods);
        let order: Vec<_> =
            pods.iter().map(|pod| (pod.priority(), pod.start_time.unwrap().as_second() % 100_000)).collect();
        assert!(order[0].0 == 2 && order[1].0 == 2 && order[2].0 == 1);
        assert!(pods[0].start_time < pods[1].start_time);
    }
}
