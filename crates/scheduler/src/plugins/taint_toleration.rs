//! Rejects nodes whose taints the pod does not tolerate, and prefers those with fewer soft ones.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

use super::{Normalize, Plugin};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        let hard = taints(node).filter(|taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute");
        match { hard }.all(|taint| is_tolerated(&pod.pod, taint)) {
            true => Ok(()),
            false => Err(vec!["node(s) had untolerated taint(s)".into()]),
        }
    }

    fn score(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let soft = taints(node).filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(&pod.pod, taint));
        i64::try_from(soft.count()).unwrap_or(i64::MAX)
    }

    fn normalize(&self) -> Normalize {
        Normalize::FewerIsBetter
    }

    fn weight(&self) -> i64 {
        3
    }
}

fn taints(node: &NodeInfo) -> impl Iterator<Item = &Taint> {
    let spec = node.node.as_ref().and_then(|node| node.spec.as_ref());
    spec.into_iter().flat_map(|spec| spec.taints.iter().flatten())
}

fn is_tolerated(pod: &Pod, taint: &Taint) -> bool {
    tolerates(pod, &taint.key, taint.value.as_deref().unwrap_or(""), &taint.effect)
}

/// Whether one of the pod's tolerations covers such a taint.
pub(super) fn tolerates(pod: &Pod, key: &str, value: &str, effect: &str) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or(&[]);
    tolerations.iter().any(|toleration| covers(toleration, key, value, effect))
}

/// An empty effect covers all effects; an empty key, with `Exists`, all keys.
fn covers(toleration: &Toleration, key: &str, value: &str, effect: &str) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (any_effect, any_key) = (text(&toleration.effect), text(&toleration.key));
    if !any_effect.is_empty() && any_effect != effect || !any_key.is_empty() && any_key != key {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => !any_key.is_empty() && text(&toleration.value) == value,
        "Exists" => true,
        operator @ ("Lt" | "Gt") => is_beyond(value, operator, &text(&toleration.value)),
        _ => false,
    }
}

/// `Gt` covers taints whose number is greater than the toleration's, `Lt` those whose number is less.
fn is_beyond(taint: &str, operator: &str, toleration: &str) -> bool {
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
    fn tolerations_cover_taints() {
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
    fn soft_taints_count() {
        let soft = json!({"key": "k", "effect": "PreferNoSchedule"});
        let node = tests::node(json!({"spec": {"taints": [soft, {"key": "l", "effect": "PreferNoSchedule"}]}}));
        let pod = tests::pod(json!({"spec": {"tolerations": [{"key": "l", "operator": "Exists"}]}}));
        assert_eq!(TaintToleration.score(&pod, &node), 1);
    }
}
