//! Calculates the time for which a pod tolerates the `NoExecute` taints of its node.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use client::tolerations::tolerates_taint;

/// Time until a pod is evicted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EvictionDelay {
    /// All taints are tolerated for ever.
    Never,
    After(Duration),
    /// A taint is not tolerated.
    None,
}

/// Returns the `NoExecute` taints of a node.
pub(super) fn no_execute_taints(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// Returns the shortest time of the tolerations that match the taints; for each taint the first match counts.
pub(super) fn eviction_delay(taints: &[Taint], tolerations: &[Toleration]) -> EvictionDelay {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates_taint(toleration, taint)) else {
            return EvictionDelay::None;
        };
        shortest = [shortest, toleration.toleration_seconds].into_iter().flatten().min();
    }
    match shortest.map(|seconds| u64::try_from(seconds).unwrap_or(0)) {
        None => EvictionDelay::Never,
        Some(0) => EvictionDelay::None,
        Some(seconds) => EvictionDelay::After(Duration::from_secs(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn shortest_toleration_of_all_taints_counts() {
        let check = |taints: Value, tolerations: Value, expected: EvictionDelay| {
            let taints: Vec<Taint> = serde_json::from_value(taints).unwrap();
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(eviction_delay(&taints, &tolerations), expected);
        };
        let taint = |key: &str| json!({"key": key, "value": "v", "effect": "NoExecute"});
        let exists = |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        let after = |seconds| EvictionDelay::After(Duration::from_secs(seconds));
        check(json!([]), json!([]), EvictionDelay::Never);
        check(json!([taint("a")]), json!([]), EvictionDelay::None);
        check(json!([taint("a")]), json!([{"operator": "Exists"}]), EvictionDelay::Never);
        check(json!([taint("a")]), json!([exists("a", Some(30))]), after(30));
        check(json!([taint("a"), taint("b")]), json!([exists("a", Some(30)), exists("b", Some(5))]), after(5));
        check(json!([taint("a"), taint("b")]), json!([exists("a", Some(30))]), EvictionDelay::None);
        check(json!([taint("a")]), json!([exists("a", Some(-1))]), EvictionDelay::None);
        check(json!([taint("a")]), json!([{"key": "a", "value": "v"}]), EvictionDelay::Never);
        check(json!([taint("a")]), json!([{"key": "a", "value": "w"}]), EvictionDelay::None);
        check(
            json!([taint("a")]),
            json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
            EvictionDelay::None,
        );
    }
}
