//! Pods: initial status, subresources and grace period.

use api::{Value, meta, qos};
use apiserver_core::{User, clock};
use serde_json::json;

use super::{
    Strategy,
    pod_label_keys::merge_label_keys,
    subresource::{CLIENT_METADATA, copy_fields, with_status},
};

/// The strategy of pods.
pub struct PodStrategy;

impl Strategy for PodStrategy {
    fn prepare_create(&self, pod: &mut Value, _: &User) {
        let gated = !meta::list_at(pod, &["spec", "schedulingGates"]).is_empty();
        let class = qos::pod_qos_class(pod);
        let status = meta::field_mut(pod, "status");
        status.insert("phase".into(), "Pending".into());
        status.insert("qosClass".into(), class.into());
        if gated {
            status.insert("conditions".into(), json!([scheduling_gated_condition()]));
        }
        merge_label_keys(pod);
    }

    fn update_subresource(&self, subresource: &str, object: Value, current: &Value) -> Value {
        match subresource {
            "ephemeralcontainers" => with_ephemeral_containers(object, current),
            "resize" => apply_resize(object, current),
            _ => apply_status_report(object, current),
        }
    }

    fn grace_period(&self, pod: &Value, requested: Option<i64>) -> Option<i64> {
        let ended = matches!(meta::string_at(pod, &["status", "phase"]), "Succeeded" | "Failed");
        if ended || meta::string_at(pod, &["spec", "nodeName"]).is_empty() {
            return Some(0);
        }
        let period = requested.unwrap_or_else(|| meta::integer_at(pod, &["spec", "terminationGracePeriodSeconds"]));
        Some(if period < 0 { 1 } else { period })
    }
}

/// The condition of a pod with scheduling gates.
fn scheduling_gated_condition() -> Value {
    json!({"type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": clock::now_in_seconds(),
        "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"})
}

/// Applies `ephemeralcontainers`: only ephemeral containers may change.
fn with_ephemeral_containers(mut pod: Value, current: &Value) -> Value {
    let mut kept = current.clone();
    copy_fields(&mut kept["spec"], &pod["spec"], &["ephemeralContainers"]);
    kept["metadata"] = pod["metadata"].take();
    copy_fields(&mut kept["metadata"], &current["metadata"], CLIENT_METADATA);
    kept
}

/// Applies `resize`: only resources and resize policies may change. Other containers are left for validation to
/// reject.
fn apply_resize(mut pod: Value, current: &Value) -> Value {
    const LISTS: [&str; 2] = ["containers", "initContainers"];
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        meta::list_at(pod, &["spec", list]).iter().map(|container| container["name"].clone()).collect()
    };
    if LISTS.iter().any(|list| names(&pod, list).len() != names(current, list).len()) {
        return pod;
    }
    let mut kept = current.clone();
    copy_fields(&mut kept["spec"], &pod["spec"], &["resources"]);
    for list in LISTS {
        if names(&pod, list) != names(current, list) {
            copy_fields(&mut kept["spec"], &pod["spec"], &[list]);
            continue;
        }
        let wanted = meta::list_at(&pod, &["spec", list]);
        let containers = kept["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, wanted) in containers.zip(wanted) {
            copy_fields(container, wanted, &["resources", "resizePolicy"]);
        }
    }
    kept["metadata"] = pod["metadata"].take();
    copy_fields(&mut kept["metadata"], &current["metadata"], CLIENT_METADATA);
    kept
}

/// Applies a kubelet's status report. Owner references and fields that old kubelets omit keep their values.
fn apply_status_report(pod: Value, current: &Value) -> Value {
    let mut pod = with_status(pod, current);
    copy_fields(&mut pod["metadata"], &current["metadata"], &["ownerReferences"]);
    for field in ["qosClass", "observedGeneration"] {
        if pod["status"].get(field).is_none() {
            copy_fields(&mut pod["status"], &current["status"], &[field]);
        }
    }
    let mut before: Vec<&Value> = meta::list_at(current, &["status", "conditions"]).iter().collect();
    let conditions = pod["status"].get_mut("conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let Some(at) = before.iter().position(|known| known["type"] == condition["type"]) else { continue };
        let known = before.remove(at);
        if condition.get("observedGeneration").is_none() {
            copy_fields(condition, known, &["observedGeneration"]);
        }
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unscheduled_pod_has_no_grace_period() {
        let pod =
            json!({"spec": {"terminationGracePeriodSeconds": 30, "nodeName": "n"}, "status": {"phase": "Running"}});
        assert_eq!(PodStrategy.grace_period(&pod, None), Some(30));
        assert_eq!(PodStrategy.grace_period(&pod, Some(5)), Some(5));
        assert_eq!(PodStrategy.grace_period(&json!({"spec": {"terminationGracePeriodSeconds": 30}}), None), Some(0));
    }
}
