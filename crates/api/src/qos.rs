//! The QoS class of a pod, from the requests and limits of its containers.

use crate::{Value, meta, quantity::Quantity};

/// The resources that decide the QoS class.
const QOS_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Returns the QoS class: `Guaranteed` when the limits of CPU and memory equal the requests, for the pod or for every
/// container; `BestEffort` when none is requested or limited; `Burstable` otherwise.
pub fn pod_qos_class(pod: &Value) -> &'static str {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let whole = ["requests", "limits"].iter().any(|kind| meta::value_at(spec, &["resources", kind]).is_some());
    let askers: Vec<&Value> = if whole {
        vec![spec]
    } else {
        ["containers", "initContainers"].iter().flat_map(|list| meta::list_at(spec, &[list])).collect()
    };
    let amount = |asker: &Value, kind: &str, name: &str| {
        Quantity::parse(meta::string_at(asker, &["resources", kind, name])).filter(|quantity| quantity.millis() > 0)
    };
    let asks = |asker: &&Value| {
        ["requests", "limits"].iter().any(|kind| QOS_RESOURCES.iter().any(|name| amount(asker, kind, name).is_some()))
    };
    let guaranteed = |asker: &&Value| {
        QOS_RESOURCES.iter().all(|name| {
            let limit = amount(asker, "limits", name);
            limit.is_some() && amount(asker, "requests", name) == limit
        })
    };
    if !askers.iter().any(asks) {
        "BestEffort"
    } else if askers.iter().all(guaranteed) {
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
    fn qos_class_follows_from_requests_and_limits() {
        let check = |resources: Value| pod_qos_class(&json!({"spec": {"containers": [{"resources": resources}]}}));
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(check(json!({})), "BestEffort");
        assert_eq!(check(json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(check(json!({"requests": all, "limits": all})), "Guaranteed");
        let pod = json!({"spec": {"containers": [{}], "resources": {"requests": all, "limits": all}}});
        assert_eq!(pod_qos_class(&pod), "Guaranteed");
    }
}
