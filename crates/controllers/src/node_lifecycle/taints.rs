//! Node taints by condition, and label pairs that mirror each other.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

/// Taint of nodes that report that they are not ready.
pub(super) const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// Taint of nodes that report nothing.
pub(super) const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";
/// `(condition, status, taint)` of the effect `NoSchedule`.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY_TAINT),
    ("Ready", "Unknown", UNREACHABLE_TAINT),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
/// Labels and the deprecated labels with the same value.
const MIRRORED_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// Taints to add and to remove, by key, of one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaintChange {
    pub(super) effect: &'static str,
    pub(super) add: Vec<&'static str>,
    pub(super) remove: Vec<&'static str>,
}

impl TaintChange {
    /// The `NoSchedule` taints that follow from the node's conditions.
    pub(super) fn no_schedule(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
        let holds = |type_: &str, status: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == status);
        let by_condition = CONDITION_TAINTS.into_iter().map(|(type_, status, key)| (key, holds(type_, status)));
        let is_unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let managed = by_condition.chain([(UNSCHEDULABLE_TAINT, is_unschedulable)]);
        let (add, remove): (Vec<_>, Vec<_>) = managed.partition(|(_, wanted)| *wanted);
        let keys = |taints: Vec<(&'static str, bool)>| taints.into_iter().map(|(key, _)| key).collect();
        Self { effect: "NoSchedule", add: keys(add), remove: keys(remove) }
    }

    /// The `NoExecute` taint that follows from the status of the condition `Ready`.
    pub(super) fn no_execute(ready_status: &str) -> Self {
        let (add, remove) = match ready_status {
            "True" => (vec![], vec![NOT_READY_TAINT, UNREACHABLE_TAINT]),
            "False" => (vec![NOT_READY_TAINT], vec![UNREACHABLE_TAINT]),
            _ => (vec![UNREACHABLE_TAINT], vec![NOT_READY_TAINT]),
        };
        Self { effect: "NoExecute", add, remove }
    }

    /// Returns the node's taints after the change; `None` if they stay the same.
    pub(super) fn apply(&self, node: &Node, now: Timestamp) -> Option<Vec<Taint>> {
        let present = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let is_removed = |taint: &Taint| taint.effect == self.effect && self.remove.contains(&taint.key.as_str());
        let mut taints: Vec<Taint> = present.iter().filter(|taint| !is_removed(taint)).cloned().collect();
        for key in &self.add {
            if !taints.iter().any(|taint| taint.key == *key && taint.effect == self.effect) {
                let (key, effect) = ((*key).into(), self.effect.into());
                taints.push(Taint { key, effect, time_added: Some(Time(now)), value: None });
            }
        }
        (taints != present).then_some(taints)
    }
}

/// Whether the node has a `NoExecute` taint.
pub(super) fn has_no_execute_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == key && taint.effect == "NoExecute")
}

/// Returns the deprecated labels that are missing or differ.
pub(super) fn labels_to_update(node: &Node) -> BTreeMap<&'static str, String> {
    let labels = node.labels();
    let differs = |(stable, beta): &(&'static str, &'static str)| {
        let value = labels.get(*stable)?;
        (labels.get(*beta) != Some(value)).then(|| (*beta, value.clone()))
    };
    MIRRORED_LABELS.iter().filter_map(differs).collect()
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
        let got = TaintChange::no_schedule(&node).apply(&node, Timestamp::UNIX_EPOCH);
        let got =
            got.map(|taints| taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect::<Vec<_>>());
        assert_eq!(got, expected.map(|all| all.iter().map(|taint| taint.to_string()).collect()));
    }

    #[test]
    fn no_schedule_taints_follow_conditions() {
        let not_ready = ["node.kubernetes.io/not-ready:NoSchedule"];
        let unreachable = ["node.kubernetes.io/unreachable:NoSchedule"];
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
        check("True", false, &["node.kubernetes.io/not-ready:NoExecute"], None);
    }

    #[test]
    fn no_execute_taints_exclude_each_other() {
        let node: Node = serde_json::from_value(
            json!({"spec": {"taints": [{"key": NOT_READY_TAINT, "effect": "NoExecute"}, {"key": NOT_READY_TAINT, "effect": "NoSchedule"}]}}),
        )
        .unwrap();
        let keys = |status: &str| {
            let taints = TaintChange::no_execute(status).apply(&node, Timestamp::UNIX_EPOCH);
            taints.map(|taints| taints.into_iter().map(|taint| taint.key + ":" + &taint.effect).collect::<Vec<_>>())
        };
        assert_eq!(keys("False"), None);
        assert_eq!(keys("True").unwrap(), ["node.kubernetes.io/not-ready:NoSchedule"]);
        assert_eq!(
            keys("Unknown").unwrap(),
            ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]
        );
        assert!(has_no_execute_taint(&node, NOT_READY_TAINT) && !has_no_execute_taint(&node, UNREACHABLE_TAINT));
    }

    #[test]
    fn deprecated_labels_follow_the_stable_ones() {
        let node: Node = serde_json::from_value(
            json!({"metadata": {"labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}}}),
        )
        .unwrap();
        let labels = labels_to_update(&node);
        assert_eq!(json!(labels), json!({"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}));
    }
}
