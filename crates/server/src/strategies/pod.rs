//! Pods: their quality of service, and the grace they get to end.

use api::{Value, meta, quantity::Quantity};

use super::Strategy;

/// The strategy of pods.
pub struct Pod;

impl Strategy for Pod {
    fn prepare_create(&self, pod: &mut Value) {
        let class = qos_class(pod);
        meta::field_mut(pod, "status").insert("qosClass".into(), class.into());
    }

    fn grace_period(&self, pod: &Value, requested: Option<i64>) -> i64 {
        let ended = matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
        if ended || meta::text(pod, &["spec", "nodeName"]).is_empty() {
            return 0;
        }
        requested.unwrap_or_else(|| meta::number(pod, &["spec", "terminationGracePeriodSeconds"]))
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
    use serde_json::json;

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
        assert_eq!(Pod.grace_period(&pod, None), 30);
        assert_eq!(Pod.grace_period(&pod, Some(5)), 5);
        assert_eq!(Pod.grace_period(&json!({"spec": {"terminationGracePeriodSeconds": 30}}), None), 0);
    }
}
