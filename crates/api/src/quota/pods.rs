//! Pods: what quotas count of them, and which of them.

use std::collections::{BTreeMap, BTreeSet};

use super::selects;
use crate::{
    Value,
    amounts::{self, Amounts},
    meta, qos,
    quantity::Quantity,
};

const NAMES: &[&str] = &[
    "pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];
/// What every container must name where a quota limits it.
const REQUIRED: &[&str] = &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const REQUESTS: &str = "requests.";

/// Whether a name that a quota limits is about pods.
pub fn counts_as(name: &str) -> bool {
    let extended = |name: &str| name.contains('/') && !name.contains("kubernetes.io/");
    NAMES.contains(&name)
        || name.starts_with("hugepages-")
        || name.strip_prefix(REQUESTS).is_some_and(|name| name.starts_with("hugepages-") || extended(name))
}

/// What a pod uses; nothing but its count once it has ended.
pub fn usage(pod: &Value, now: i64) -> Amounts {
    if has_ended(pod, now) {
        return Amounts::new();
    }
    let overhead = amounts::read(meta::at(pod, &["spec", "overhead"]));
    let mut requests = amounts::of_pod(pod, "requests");
    amounts::add(&mut requests, &overhead);
    let mut limits = amounts::of_pod(pod, "limits");
    let limited: Amounts = overhead.into_iter().filter(|(name, _)| limits.contains_key(name)).collect();
    amounts::add(&mut limits, &limited);
    named(&requests, &limits)
}

/// Amounts under the names that quotas have for them.
fn named(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), Quantity::whole(1))]);
    for (name, amount) in requests {
        if COMPUTE.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
            used.insert(format!("{REQUESTS}{name}"), *amount);
        } else if name.contains('/') {
            used.insert(format!("{REQUESTS}{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

fn has_ended(pod: &Value, now: i64) -> bool {
    let grace = meta::at(pod, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let since = meta::text(pod, &["metadata", "deletionTimestamp"]).parse::<jiff::Timestamp>();
    let overdue = since.is_ok_and(|since| grace.is_some_and(|grace| now > since.as_second() + grace));
    matches!(meta::text(pod, &["status", "phase"]), "Succeeded" | "Failed") || overdue
}

/// What containers of a pod must name because a quota limits it, and do not.
pub fn missing(pod: &Value, limited: &[String]) -> Option<String> {
    let whole = |which: &str| meta::at(pod, &["spec", "resources", which]).is_some();
    if whole("requests") || whole("limits") {
        return None;
    }
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in ["containers", "initContainers"].iter().flat_map(|list| meta::list(pod, &["spec", list])) {
        let amounts = |which: &str| amounts::read(meta::at(container, &["resources", which]));
        let named = named(&amounts("requests"), &amounts("limits"));
        let required = limited.iter().filter(|name| REQUIRED.contains(&name.as_str()) && !named.contains_key(*name));
        for name in required {
            lacking.entry(name).or_default().insert(meta::text(container, &["name"]));
        }
    }
    let join = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(",");
    let parts: Vec<String> = lacking.iter().map(|(name, of)| format!("{name} for: {}", join(of))).collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// Whether a pod is within a scope.
pub fn matches(scope: &Value, pod: &Value) -> bool {
    let terminating = meta::at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|s| s >= 0);
    let best_effort = || qos::class(pod) == "BestEffort";
    let class = meta::text(pod, &["spec", "priorityClassName"]);
    match meta::text(scope, &["scopeName"]) {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" if scope["operator"] == "Exists" => !class.is_empty(),
        "PriorityClass" => {
            selects(scope, &Some(class.to_owned()).filter(|class| !class.is_empty()).into_iter().collect())
        }
        "CrossNamespacePodAffinity" => looks_elsewhere(pod),
        _ => false,
    }
}

/// Whether a pod's affinity is to pods of other namespaces.
fn looks_elsewhere(pod: &Value) -> bool {
    let elsewhere = |term: &Value| {
        !meta::list(term, &["namespaces"]).is_empty() || meta::at(term, &["namespaceSelector"]).is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |which: &str| meta::list(pod, &["spec", "affinity", kind, which]);
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(elsewhere)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| meta::at(weighted, &["podAffinityTerm"]).is_some_and(elsewhere))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_count_while_they_run() {
        let check = |pod: Value, want: Value| assert_eq!(amounts::write(&usage(&pod, 1_000_000_000)), want, "{pod}");
        let resources = json!({"requests": {"cpu": "100m", "example.com/gpu": "2"}, "limits": {"cpu": "1"}});
        let spec = json!({"containers": [{"name": "c", "resources": resources}]});
        let all = json!({"pods": "1", "cpu": "100m", "requests.cpu": "100m", "limits.cpu": "1",
            "requests.example.com/gpu": "2"});
        check(json!({"spec": spec}), all.clone());
        check(json!({"spec": spec, "status": {"phase": "Succeeded"}}), json!({}));
        let deleted = |at: &str| json!({"deletionTimestamp": at, "deletionGracePeriodSeconds": 30});
        check(json!({"spec": spec, "metadata": deleted("2001-09-09T01:46:40Z")}), all);
        check(json!({"spec": spec, "metadata": deleted("2001-09-09T01:45:00Z")}), json!({}));
    }

    #[test]
    fn what_is_limited_must_be_named() {
        let pod =
            json!({"spec": {"containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}}}, {"name": "a"}]}});
        let check =
            |limited: &[&str]| missing(&pod, &limited.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(check(&["cpu", "limits.cpu", "pods"]).unwrap(), "must specify cpu for: a; limits.cpu for: a,b");
        assert_eq!(check(&["pods"]), None);
    }

    #[test]
    fn scopes_divide_pods() {
        let pod = json!({"spec": {"priorityClassName": "high", "activeDeadlineSeconds": 5, "containers": [{}]}});
        let check = |name: &str, operator: &str, values: Value, want: bool| {
            let scope = json!({"scopeName": name, "operator": operator, "values": values});
            assert_eq!(matches(&scope, &pod), want, "{scope}");
        };
        check("Terminating", "Exists", json!([]), true);
        check("NotTerminating", "Exists", json!([]), false);
        check("BestEffort", "Exists", json!([]), true);
        check("PriorityClass", "In", json!(["high", "low"]), true);
        check("PriorityClass", "NotIn", json!(["high"]), false);
        check("PriorityClass", "DoesNotExist", json!([]), false);
        check("CrossNamespacePodAffinity", "Exists", json!([]), false);
    }
}
