//! Quota evaluation of pods.

use std::collections::{BTreeMap, BTreeSet};

use super::scope_selects;
use crate::{
    Value, meta, qos,
    quantity::Quantity,
    resource_list::{self, ResourceList},
};

const POD_RESOURCES: &str = "pods cpu memory ephemeral-storage requests.cpu requests.memory requests.ephemeral-storage \
    limits.cpu limits.memory limits.ephemeral-storage";
/// The resources that every container must set where a quota limits them.
const REQUIRED_IN_CONTAINERS: &[&str] =
    &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const COMPUTE_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const REQUESTS_PREFIX: &str = "requests.";

/// Whether a resource name of a quota applies to pods.
pub fn is_pod_resource(name: &str) -> bool {
    let extended = |name: &str| name.contains('/') && !name.contains("kubernetes.io/");
    POD_RESOURCES.split(' ').any(|known| known == name)
        || name.starts_with("hugepages-")
        || name.strip_prefix(REQUESTS_PREFIX).is_some_and(|name| name.starts_with("hugepages-") || extended(name))
}

/// Returns the usage of a pod; a terminal pod uses nothing but its count.
pub fn pod_usage(pod: &Value, now: i64) -> ResourceList {
    if is_terminal(pod, now) {
        return ResourceList::new();
    }
    let overhead = resource_list::parse_resource_list(meta::value_at(pod, &["spec", "overhead"]));
    let mut requests = resource_list::pod_resources(pod, "requests");
    resource_list::add_resources(&mut requests, &overhead);
    let mut limits = resource_list::pod_resources(pod, "limits");
    let limited: ResourceList = overhead.into_iter().filter(|(name, _)| limits.contains_key(name)).collect();
    resource_list::add_resources(&mut limits, &limited);
    quota_usage(&requests, &limits)
}

/// Maps requests and limits to the resource names of quotas.
fn quota_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut used = ResourceList::from([("pods".to_owned(), Quantity::from_integer(1))]);
    for (name, amount) in requests {
        if COMPUTE_RESOURCES.contains(&name.as_str()) || name.starts_with("hugepages-") {
            used.insert(name.clone(), *amount);
            used.insert(format!("{REQUESTS_PREFIX}{name}"), *amount);
        } else if name.contains('/') {
            used.insert(format!("{REQUESTS_PREFIX}{name}"), *amount);
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| COMPUTE_RESOURCES.contains(&name.as_str())) {
        used.insert(format!("limits.{name}"), *amount);
    }
    used
}

fn is_terminal(pod: &Value, now: i64) -> bool {
    let grace = meta::value_at(pod, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64);
    let since = meta::string_at(pod, &["metadata", "deletionTimestamp"]).parse::<jiff::Timestamp>();
    let overdue = since.is_ok_and(|since| grace.is_some_and(|grace| now > since.as_second() + grace));
    matches!(meta::string_at(pod, &["status", "phase"]), "Succeeded" | "Failed") || overdue
}

/// Lists the resources that a quota limits and containers fail to set.
pub fn missing_requirements(pod: &Value, limited: &[String]) -> Option<String> {
    let whole = |which: &str| meta::value_at(pod, &["spec", "resources", which]).is_some();
    if whole("requests") || whole("limits") {
        return None;
    }
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in ["containers", "initContainers"].iter().flat_map(|list| meta::list_at(pod, &["spec", list])) {
        let resources =
            |which: &str| resource_list::parse_resource_list(meta::value_at(container, &["resources", which]));
        let named = quota_usage(&resources("requests"), &resources("limits"));
        let required =
            limited.iter().filter(|name| REQUIRED_IN_CONTAINERS.contains(&name.as_str()) && !named.contains_key(*name));
        for name in required {
            lacking.entry(name).or_default().insert(meta::string_at(container, &["name"]));
        }
    }
    let join = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(",");
    let parts: Vec<String> = lacking.iter().map(|(name, of)| format!("{name} for: {}", join(of))).collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// Whether a pod matches a scope.
pub fn pod_matches_scope(scope: &Value, pod: &Value) -> bool {
    let terminating =
        meta::value_at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|s| s >= 0);
    let best_effort = || qos::pod_qos_class(pod) == "BestEffort";
    let class = meta::string_at(pod, &["spec", "priorityClassName"]);
    match meta::string_at(scope, &["scopeName"]) {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" if scope["operator"] == "Exists" => !class.is_empty(),
        "PriorityClass" => {
            scope_selects(scope, &Some(class.to_owned()).filter(|class| !class.is_empty()).into_iter().collect())
        }
        "CrossNamespacePodAffinity" => has_cross_namespace_affinity(pod),
        _ => false,
    }
}

/// Whether a pod's affinity refers to other namespaces.
fn has_cross_namespace_affinity(pod: &Value) -> bool {
    let elsewhere = |term: &Value| {
        !meta::list_at(term, &["namespaces"]).is_empty() || meta::value_at(term, &["namespaceSelector"]).is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |which: &str| meta::list_at(pod, &["spec", "affinity", kind, which]);
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(elsewhere)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| meta::value_at(weighted, &["podAffinityTerm"]).is_some_and(elsewhere))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terminal_pod_uses_nothing() {
        let check = |pod: Value, want: Value| {
            assert_eq!(resource_list::encode_resource_list(&pod_usage(&pod, 1_000_000_000)), want, "{pod}")
        };
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
    fn limited_resources_must_be_set() {
        let pod =
            json!({"spec": {"containers": [{"name": "b", "resources": {"requests": {"cpu": "1"}}}, {"name": "a"}]}});
        let check = |limited: &[&str]| {
            missing_requirements(&pod, &limited.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(check(&["cpu", "limits.cpu", "pods"]).unwrap(), "must specify cpu for: a; limits.cpu for: a,b");
        assert_eq!(check(&["pods"]), None);
    }

    #[test]
    fn scopes_select_pods() {
        let pod = json!({"spec": {"priorityClassName": "high", "activeDeadlineSeconds": 5, "containers": [{}]}});
        let check = |name: &str, operator: &str, values: Value, want: bool| {
            let scope = json!({"scopeName": name, "operator": operator, "values": values});
            assert_eq!(pod_matches_scope(&scope, &pod), want, "{scope}");
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
