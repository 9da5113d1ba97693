//! Arithmetic on resource lists: requests and limits of containers and pods, usage of quotas.

use std::collections::BTreeMap;

use crate::{Value, meta, quantity::Quantity};

/// Quantities by resource name, upstream's `ResourceList`.
pub type ResourceList = BTreeMap<String, Quantity>;

/// The resources that pod-level `spec.resources` may set, besides huge pages.
pub(crate) const POD_LEVEL_RESOURCES: [&str; 2] = ["cpu", "memory"];

/// Parses a resource list; malformed quantities are skipped.
pub fn parse_resource_list(list: Option<&Value>) -> ResourceList {
    let list = list.and_then(Value::as_object).into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), Quantity::parse(amount.as_str()?)?))).collect()
}

/// Encodes a resource list for the API.
pub fn encode_resource_list(amounts: &ResourceList) -> Value {
    amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string()))).collect()
}

/// Adds `more` to `to`, per resource.
pub fn add_resources(to: &mut ResourceList, more: &ResourceList) {
    for (name, amount) in more {
        to.entry(name.clone()).and_modify(|sum| *sum = sum.plus(*amount)).or_insert(*amount);
    }
}

/// Raises each quantity in `to` to that in `other` where it is larger.
pub fn raise_to_max(to: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        to.entry(name.clone()).and_modify(|own| *own = if *own < *amount { *amount } else { *own }).or_insert(*amount);
    }
}

/// Returns the effective `requests` or `limits` of a pod: pod-level resources where set, otherwise those of its
/// containers.
pub fn pod_resources(pod: &Value, which: &str) -> ResourceList {
    let mut sum = meta::value_at(pod, &["spec"]).map(|spec| container_resources(spec, which)).unwrap_or_default();
    let whole = parse_resource_list(meta::value_at(pod, &["spec", "resources", which]));
    sum.extend(
        whole
            .into_iter()
            .filter(|(name, _)| POD_LEVEL_RESOURCES.contains(&name.as_str()) || name.starts_with("hugepages-")),
    );
    sum
}

/// Returns the effective `requests` or `limits` of the containers of a pod spec: the maximum of all running containers
/// together and of any init container with the sidecars started before it.
pub fn container_resources(spec: &Value, which: &str) -> ResourceList {
    let of = |container: &Value| parse_resource_list(meta::value_at(container, &["resources", which]));
    let mut sum = ResourceList::new();
    for container in meta::list_at(spec, &["containers"]) {
        add_resources(&mut sum, &of(container));
    }
    let (mut beside, mut before) = (ResourceList::new(), ResourceList::new());
    for container in meta::list_at(spec, &["initContainers"]) {
        let own = of(container);
        if meta::string_at(container, &["restartPolicy"]) == "Always" {
            add_resources(&mut sum, &own);
            add_resources(&mut beside, &own);
            raise_to_max(&mut before, &beside);
        } else {
            let mut then = own;
            add_resources(&mut then, &beside);
            raise_to_max(&mut before, &then);
        }
    }
    raise_to_max(&mut sum, &before);
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_resources_are_the_larger_of_init_and_running_containers() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        let check = |spec: Value, want: &str| {
            let sum = pod_resources(&json!({"spec": spec}), "requests");
            assert_eq!(sum.get("cpu").map(ToString::to_string).as_deref(), Some(want), "{spec}");
        };
        check(json!({"containers": [container("1"), container("500m")]}), "1500m");
        check(json!({"containers": [container("1")], "initContainers": [container("3")]}), "3");
        check(json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]}), "4");
        check(json!({"containers": [container("1")], "initContainers": [sidecar("1")]}), "2");
        check(json!({"containers": [container("1")], "resources": {"requests": {"cpu": "7"}}}), "7");
    }

    #[test]
    fn sums_keep_the_quantity_format() {
        let mut sum = parse_resource_list(Some(&json!({"memory": "1Gi", "pods": "1"})));
        add_resources(&mut sum, &parse_resource_list(Some(&json!({"memory": "1Gi", "cpu": "100m"}))));
        assert_eq!(encode_resource_list(&sum), json!({"cpu": "100m", "memory": "2Gi", "pods": "1"}));
    }
}
