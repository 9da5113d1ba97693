//! The quality of service that a pod gets, from what its containers ask for.

use crate::{Value, meta, quantity::Quantity};

/// What quality depends on.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed` when CPU and memory are limited to what is requested, by the pod as a whole or by every container;
/// `BestEffort` when nothing is asked for.
pub fn class(pod: &Value) -> &'static str {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let whole = ["requests", "limits"].iter().any(|kind| meta::at(spec, &["resources", kind]).is_some());
    let askers: Vec<&Value> = if whole {
        vec![spec]
    } else {
        ["containers", "initContainers"].iter().flat_map(|list| meta::list(spec, &[list])).collect()
    };
    let amount = |asker: &Value, kind: &str, name: &str| {
        Quantity::parse(meta::text(asker, &["resources", kind, name])).filter(|quantity| quantity.millis() > 0)
    };
    let asks = |asker: &&Value| {
        ["requests", "limits"].iter().any(|kind| RESOURCES.iter().any(|name| amount(asker, kind, name).is_some()))
    };
    let guaranteed = |asker: &&Value| {
        RESOURCES.iter().all(|name| {
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
    fn quality_follows_from_requests_and_limits() {
        let check = |resources: Value| class(&json!({"spec": {"containers": [{"resources": resources}]}}));
        let all = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(check(json!({})), "BestEffort");
        assert_eq!(check(json!({"requests": {"cpu": "1"}})), "Burstable");
        assert_eq!(check(json!({"requests": all, "limits": all})), "Guaranteed");
        let pod = json!({"spec": {"containers": [{}], "resources": {"requests": all, "limits": all}}});
        assert_eq!(class(&pod), "Guaranteed");
    }
}
