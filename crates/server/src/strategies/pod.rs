//! Pods: their quality of service, and the grace they get to end.

use api::{Value, meta, quantity::Quantity};
use serde_json::json;

use super::Strategy;
use crate::{User, clock};

/// The strategy of pods.
pub struct Pod;

impl Strategy for Pod {
    fn prepare_create(&self, pod: &mut Value, _: &User) {
        let class = qos_class(pod);
        meta::field_mut(pod, "status").insert("qosClass".into(), class.into());
        if !meta::list(pod, &["spec", "schedulingGates"]).is_empty() {
            let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": clock::seconds()}]);
            meta::field_mut(pod, "status").insert("conditions".into(), gated);
        }
    }

    fn prepare_status(&self, pod: &mut Value, current: &Value) {
        let owners = current["metadata"].get("ownerReferences").cloned();
        let metadata = meta::metadata_mut(pod);
        match owners {
            Some(owners) => metadata.insert("ownerReferences".into(), owners),
            None => metadata.remove("ownerReferences"),
        };
        if meta::text(pod, &["status", "qosClass"]).is_empty()
            && let Some(class) = current["status"].get("qosClass")
        {
            meta::field_mut(pod, "status").insert("qosClass".into(), class.clone());
        }
    }

    fn grace_period(&self, pod: &Value, requested: Option<i64>) -> Option<i64> {
        let ended = matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
        if ended || meta::text(pod, &["spec", "nodeName"]).is_empty() {
            return Some(0);
        }
        let period = requested.unwrap_or_else(|| meta::number(pod, &["spec", "terminationGracePeriodSeconds"]));
        Some(if period < 0 { 1 } else { period })
    }
}

/// Guaranteed when every container limits CPU and memory to what it requests, BestEffort when none asks for anything.
fn qos_class(pod: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers: Vec<&Value> = lists.iter().flat_map(|list| meta::list(pod, &["spec", list])).collect();
    let amount = |container: &Value, kind: &str, name: &str| {
        Quantity::parse(meta::text(container, &["resources", kind, name])).filter(|quantity| quantity.millis() > 0)
    };
    let asks = |container: &&Value| {
        ["requests", "limits"]
            .iter()
            .any(|kind| ["cpu", "memory"].iter().any(|name| amount(container, kind, name).is_some()))
    };
    let guaranteed = |container: &&Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = amount(container, "limits", name);
            limit.is_some() && amount(container, "requests", name) == limit
        })
    };
    if !containers.iter().any(asks) {
        "BestEffort"
    } else if containers.iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_follows_from_requests_and_limits() {
        let check = |resources: Value| qos_class(&json!({"spec": {"containers": [{"resources": resources}]}}));
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(check(json!({})), "BestEffort");
        assert_eq!(check(json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(check(json!({"requests": all, "limits": all})), "Guaranteed");
    }

    #[test]
    fn only_pods_on_a_node_get_grace() {
        let pod =
            json!({"spec": {"terminationGracePeriodSeconds": 30, "nodeName": "n"}, "status": {"phase": "Running"}});
        assert_eq!(Pod.grace_period(&pod, None), Some(30));
        assert_eq!(Pod.grace_period(&pod, Some(5)), Some(5));
        assert_eq!(Pod.grace_period(&json!({"spec": {"terminationGracePeriodSeconds": 30}}), None), Some(0));
    }
}
