//! Node taints by condition.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// `(condition, status, taint)`. The taints of `Ready` also have the effect `NoExecute`.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Returns the node's taints if they must change. Taints that this controller does not manage are kept.
pub(super) fn updated_taints(node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
    let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let desired = expected_taints(node);
    let is_wanted = |taint: &Taint| desired.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect);
    let mut taints: Vec<Taint> =
        present.iter().filter(|taint| !is_managed_taint(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in desired {
        if !taints.iter().any(|taint| taint.key == key && taint.effect == effect) {
            taints.push(Taint { key: key.into(), effect: effect.into(), time_added: Some(Time(now)), value: None });
        }
    }
    (taints != present).then_some(taints)
}

fn expected_taints(node: &Node) -> Vec<(&'static str, &'static str)> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
    let holds = |type_: &str, status: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == status);
    let mut desired = Vec::new();
    for (type_, _, key) in CONDITION_TAINTS.into_iter().filter(|(type_, status, _)| holds(type_, status)) {
        desired.push((key, "NoSchedule"));
        if type_ == "Ready" {
            desired.push((key, "NoExecute"));
        }
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        desired.push((UNSCHEDULABLE_TAINT, "NoSchedule"));
    }
    desired
}

/// Whether this controller manages the taint.
fn is_managed_taint(taint: &Taint) -> bool {
    match CONDITION_TAINTS.iter().find(|(_, _, key)| taint.key == *key) {
        Some(("Ready", ..)) => taint.effect == "NoSchedule" || taint.effect == "NoExecute",
        Some(_) => taint.effect == "NoSchedule",
        None => taint.key == UNSCHEDULABLE_TAINT && taint.effect == "NoSchedule",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the taints (`key:effect`) for a node with this readiness and these taints; `None`: unchanged.
    fn check(ready: &str, unschedulable: bool, present: &[&str], expected: Option<&[&str]>) {
        let split = |taint: &&str| {
            let (key, effect) = taint.split_once(':').unwrap();
            json!({"key": key, "effect": effect})
        };
        let taints: Vec<_> = present.iter().map(split).collect();
        let node = json!({"spec": {"unschedulable": unschedulable, "taints": taints}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let node: Node = serde_json::from_value(node).unwrap();
        let got = updated_taints(&node, Timestamp::UNIX_EPOCH);
        let got =
            got.map(|taints| taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>());
        assert_eq!(got, expected.map(|all| all.iter().map(|taint| taint.to_string()).collect()));
    }

    #[test]
    fn taints_follow_conditions() {
        let not_ready = ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"];
        let unreachable = ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
        check("True", false, &[], None);
        check("False", false, &[], Some(&not_ready));
        check("False", false, &not_ready, None);
        check("Unknown", false, &not_ready, Some(&unreachable));
        check("True", false, &unreachable, Some(&[]));
        check("True", false, &["mine:NoSchedule"], None);
        check(
            "True",
            true,
            &["mine:NoSchedule"],
            Some(&["mine:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]),
        );
        check("True", false, &["node.kubernetes.io/not-ready:NoSchedule", "mine:NoExecute"], Some(&["mine:NoExecute"]));
    }
}
