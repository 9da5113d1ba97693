//! TaintToleration: rejects nodes with untolerated taints and prefers fewer `PreferNoSchedule` taints.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

use super::{SchedulerPlugin, ScoreNormalization};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct TaintToleration;

impl SchedulerPlugin for TaintToleration {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let hard = node_taints(node).filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
        match { hard }.all(|taint| is_tolerated(&pod.pod, taint)) {
            true => Ok(()),
            false => Err(vec!["node(s) had untolerated taint(s)".into()]),
        }
    }

    fn score_node(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let soft =
            node_taints(node).filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(&pod.pod, taint));
        i64::try_from(soft.count()).unwrap_or(i64::MAX)
    }

    fn score_normalization(&self) -> ScoreNormalization {
        ScoreNormalization::Reversed
    }

    fn score_weight(&self) -> i64 {
        3
    }
}

fn node_taints(node: &NodeInfo) -> impl Iterator<Item = &Taint> {
    let spec = node.node.as_ref().and_then(|node| node.spec.as_ref());
    spec.into_iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    tolerates_taint(pod, &taint.key, taint.value.as_deref().unwrap_or(""), &taint.effect)
}

/// Whether one of the pod's tolerations matches the taint.
pub(super) fn tolerates_taint(pod: &Pod, key: &str, value: &str, effect: &str) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or(&[]);
    tolerations.iter().any(|toleration| toleration_matches(toleration, key, value, effect))
}

/// Whether a toleration matches. An empty effect matches all effects; an empty key with `Exists`, all keys.
fn toleration_matches(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (any_effect, any_key) = (text(&toleration.effect), text(&toleration.key));
    if !any_effect.is_empty() && any_effect != effect || !any_key.is_empty() && any_key != key {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => !any_key.is_empty() && text(&toleration.value) == value,
        "Exists" => true,
        operator @ ("Lt" | "Gt") => compare_numeric_taint(value, operator, &text(&toleration.value)),
        _ => false,
    }
}

/// Compares numeric values: `Gt` matches taints greater than the toleration's value, `Lt` smaller ones.
fn compare_numeric_taint(taint: &str, operator: &str, toleration: &str) -> bool {
    match (taint.parse::<i64>(), toleration.parse::<i64>()) {
        (Ok(taint), Ok(bound)) => {
            if operator == "Gt" {
                taint > bound
            } else {
                taint < bound
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests, *};

    fn check(tolerations: Value, taint: Value, accepted: bool) {
        let (pod, node) = (json!({"spec": {"tolerations": tolerations}}), json!({"spec": {"taints": [taint]}}));
        tests::check(&TaintToleration, pod, node, if accepted { "" } else { "node(s) had untolerated taint(s)" });
    }

    #[test]
    fn tolerations_match_like_upstream() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
        check(json!([]), taint.clone(), false);
        check(json!([]), json!({"key": "k", "effect": "PreferNoSchedule"}), true);
        check(json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]), taint.clone(), true);
        check(json!([{"key": "k", "operator": "Equal", "value": "w"}]), taint.clone(), false);
        check(json!([{"key": "k", "operator": "Exists"}]), taint.clone(), true);
        check(json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]), taint.clone(), false);
        check(json!([{"operator": "Exists"}]), taint.clone(), true);
        check(json!([{"key": "other", "operator": "Exists"}]), taint, false);
    }

    #[test]
    fn untolerated_soft_taints_are_counted() {
        let soft = json!({"key": "k", "effect": "PreferNoSchedule"});
        let node = tests::node(json!({"spec": {"taints": [soft, {"key": "l", "effect": "PreferNoSchedule"}]}}));
        let pod = tests::pod(json!({"spec": {"tolerations": [{"key": "l", "operator": "Exists"}]}}));
        assert_eq!(TaintToleration.score_node(&pod, &node), 1);
    }
}
