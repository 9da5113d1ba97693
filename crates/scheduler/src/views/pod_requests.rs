//! The resources that a pod requests of its node, as upstream's `PodRequests` counts them.
//!
//! Containers add up; init containers count where the init phase needs more; sidecars count in both. Requests of the whole
//! pod replace those of its containers. A resize in progress counts with the greater of old and new.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus},
    apimachinery::pkg::api::resource::Quantity as QuantityText,
};

use crate::views::resources::Resource;

/// Memory that scoring assumes for a container without request.
const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

type TextList = BTreeMap<String, QuantityText>;
type QuantityList = BTreeMap<String, Quantity>;

/// Requests of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodRequests {
    /// The requests that count against the node, by the allocation of running containers.
    pub allocated: Resource,
    /// CPU for scoring, with defaults for containers without requests.
    pub non_zero_milli_cpu: i64,
    /// Memory for scoring, with defaults for containers without requests.
    pub non_zero_memory: i64,
    /// CPU that `NodeResourcesFit` scores: as `non_zero_milli_cpu`, but by the spec and without requests of the pod level.
    pub fit_score_milli_cpu: i64,
    /// Memory that `NodeResourcesFit` scores.
    pub fit_score_memory: i64,
    /// The requests of the spec alone.
    pub of_spec: Resource,
    /// The requests of the spec's containers alone.
    pub of_containers: Resource,
}

impl PodRequests {
    /// Computes the requests of a pod.
    pub fn from_pod(pod: &Pod) -> Self {
        let (Some(spec), status) = (&pod.spec, pod.status.as_ref()) else { return Self::default() };
        let counted = |options: RequestOptions<'_>| pod_requests(spec, status, &options);
        let by_status = RequestOptions { use_status: true, use_pod_level: true, defaults: &[] };
        let requests = counted(by_status);
        let defaults = default_requests(spec, &requests);
        let non_zero = if defaults.is_empty() {
            requests.clone()
        } else {
            counted(RequestOptions { use_status: true, use_pod_level: true, defaults: &defaults })
        };
        let both = default_quantities();
        let fit_score = counted(RequestOptions { use_status: false, use_pod_level: false, defaults: &both });
        let of_spec = counted(RequestOptions { use_status: false, use_pod_level: true, defaults: &[] });
        let of_containers = counted(RequestOptions { use_status: false, use_pod_level: false, defaults: &[] });
        let amount = |list: &QuantityList, name: &str| list.get(name).copied().unwrap_or(Quantity::ZERO);
        Self {
            non_zero_milli_cpu: amount(&non_zero, "cpu").millis(),
            non_zero_memory: amount(&non_zero, "memory").value(),
            fit_score_milli_cpu: amount(&fit_score, "cpu").millis(),
            fit_score_memory: amount(&fit_score, "memory").value(),
            allocated: resource(&requests),
            of_spec: resource(&of_spec),
            of_containers: resource(&of_containers),
        }
    }
}

fn resource(list: &QuantityList) -> Resource {
    let mut resource = Resource::from_quantities(list.iter().map(|(name, quantity)| (name.as_str(), *quantity)));
    resource.allowed_pods = 0;
    resource
}

/// Returns the requests that scoring assumes for a container without its own: a tenth of a core and 200 MiB.
fn default_quantities() -> Vec<(&'static str, Quantity)> {
    let cpu = Quantity::parse("100m").unwrap_or(Quantity::ZERO);
    vec![("cpu", cpu), ("memory", Quantity::from_integer(DEFAULT_MEMORY_REQUEST))]
}

/// Returns the requests to assume for containers without their own: with requests of the whole pod, only what those lack.
fn default_requests(spec: &PodSpec, requests: &QuantityList) -> Vec<(&'static str, Quantity)> {
    let mut defaults = default_quantities();
    if has_pod_level_requests(spec) {
        defaults.retain(|(name, _)| !requests.contains_key(*name));
    }
    defaults
}

struct RequestOptions<'a> {
    /// Whether resources of running containers count.
    use_status: bool,
    use_pod_level: bool,
    /// Requests of containers that have none.
    defaults: &'a [(&'static str, Quantity)],
}

fn pod_requests(spec: &PodSpec, status: Option<&PodStatus>, options: &RequestOptions<'_>) -> QuantityList {
    let mut requests = container_requests(spec, status, options);
    if options.use_pod_level && has_pod_level_requests(spec) {
        let of_pod = parse_list(spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()));
        let actual = status.filter(|_| options.use_status).and_then(|status| {
            let actuated = status.resources.as_ref()?.requests.as_ref();
            Some(effective_requests(status, &of_pod, actuated, status.allocated_resources.as_ref()))
        });
        for (name, quantity) in of_pod.iter().filter(|(name, _)| is_pod_level_resource(name)) {
            let quantity = actual.as_ref().map_or(*quantity, |all| all.get(name).copied().unwrap_or(Quantity::ZERO));
            requests.insert(name.clone(), quantity);
        }
    }
    add_list(&mut requests, &parse_list(spec.overhead.as_ref()));
    requests
}

fn container_requests(spec: &PodSpec, status: Option<&PodStatus>, options: &RequestOptions<'_>) -> QuantityList {
    let status = status.filter(|_| options.use_status);
    let requests_of = |container: &Container, by_status: bool| {
        let mut requests = parse_list(container.resources.as_ref().and_then(|all| all.requests.as_ref()));
        if let Some(status) = status.filter(|_| by_status)
            && let Some(running) = container_status(status, &container.name)
            && let Some(actual) = &running.resources
        {
            let allocated = running.allocated_resources.as_ref();
            requests = effective_requests(status, &requests, actual.requests.as_ref(), allocated);
        }
        for (name, quantity) in options.defaults {
            requests.entry((*name).into()).or_insert(*quantity);
        }
        requests
    };
    let mut total = QuantityList::new();
    spec.containers.iter().for_each(|container| add_list(&mut total, &requests_of(container, true)));
    let (mut sidecars, mut init_phase) = (QuantityList::new(), QuantityList::new());
    for container in spec.init_containers.iter().flatten() {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        let mut requests = requests_of(container, is_sidecar);
        if is_sidecar {
            add_list(&mut total, &requests);
            add_list(&mut sidecars, &requests);
            requests = sidecars.clone();
        } else {
            add_list(&mut requests, &sidecars);
        }
        max_list(&mut init_phase, &requests);
    }
    max_list(&mut total, &init_phase);
    total
}

fn container_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.rev().find(|status| status.name == name)
}

/// Returns the greatest of wanted, actual and allocated requests; a resize that can never happen is not wanted.
fn effective_requests(
    status: &PodStatus,
    wanted: &QuantityList,
    actual: Option<&TextList>,
    allocated: Option<&TextList>,
) -> QuantityList {
    let mut pending = status.conditions.iter().flatten().filter(|condition| condition.type_ == "PodResizePending");
    let is_infeasible = pending.next().is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"));
    let mut requests = if is_infeasible { QuantityList::new() } else { wanted.clone() };
    max_list(&mut requests, &parse_list(actual));
    max_list(&mut requests, &parse_list(allocated));
    requests
}

fn has_pod_level_requests(spec: &PodSpec) -> bool {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    requests.into_iter().flatten().any(|(name, _)| is_pod_level_resource(name))
}

fn is_pod_level_resource(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

fn parse_list(list: Option<&TextList>) -> QuantityList {
    let entries = list.into_iter().flatten();
    entries.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0)?))).collect()
}

fn add_list(list: &mut QuantityList, other: &QuantityList) {
    for (name, quantity) in other {
        match list.get_mut(name) {
            Some(known) => *known = known.plus(*quantity),
            None => drop(list.insert(name.clone(), *quantity)),
        }
    }
}

fn max_list(list: &mut QuantityList, other: &QuantityList) {
    for (name, quantity) in other {
        match list.get_mut(name) {
            Some(known) if *quantity > *known => *known = *quantity,
            Some(_) => {}
            None => drop(list.insert(name.clone(), *quantity)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(pod: Value, milli_cpu: i64, non_zero_milli_cpu: i64) {
        let requests = PodRequests::from_pod(&serde_json::from_value(pod.clone()).unwrap());
        assert_eq!(
            (requests.allocated.milli_cpu, requests.non_zero_milli_cpu),
            (milli_cpu, non_zero_milli_cpu),
            "{pod}"
        );
    }

    fn container(cpu: &str) -> Value {
        json!({"name": format!("c{cpu}"), "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn containers_add_up_and_init_containers_count_by_their_maximum() {
        check(json!({"spec": {"containers": [container("1"), container("500m")]}}), 1500, 1500);
        check(json!({"spec": {"containers": [{"name": "c"}, container("1")]}}), 1000, 1100);
        check(json!({"spec": {"containers": [container("1")], "initContainers": [container("3")]}}), 3000, 3000);
        let mut sidecar = container("2");
        sidecar["restartPolicy"] = json!("Always");
        check(
            json!({"spec": {"containers": [container("1")], "initContainers": [sidecar, container("3")]}}),
            5000,
            5000,
        );
        check(json!({"spec": {"containers": [container("1")], "overhead": {"cpu": "250m"}}}), 1250, 1250);
    }

    #[test]
    fn requests_of_the_pod_replace_those_of_its_containers() {
        let spec = json!({"containers": [container("1"), {"name": "c"}], "resources": {"requests": {"cpu": "4"}}});
        check(json!({"spec": spec}), 4000, 4000);
        let spec = json!({"containers": [{"name": "c"}], "resources": {"requests": {"memory": "1Gi"}}});
        check(json!({"spec": spec}), 0, 100);
    }

    #[test]
    fn resize_in_progress_counts_with_the_greater() {
        let status = json!({"containerStatuses": [{"name": "c1", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}]});
        let pod = json!({"spec": {"containers": [container("1")]}, "status": status});
        check(pod.clone(), 3000, 3000);
        let requests = PodRequests::from_pod(&serde_json::from_value(pod).unwrap());
        assert_eq!(requests.of_spec.milli_cpu, 1000);
    }
}
