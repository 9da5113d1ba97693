//! Resource requests of pods, which utilization is measured against.

use api::quantity::Quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::ResourceExt;

use super::MetricsError;

use crate::pod_view::{ContainerView, PodSpecView, PodView};

/// Returns the request of a pod, or of one of its containers, in thousandths. Requests of the pod as a whole take
/// precedence over the sum of its containers.
pub(super) fn pod_requests(pod: &PodView, container: Option<&str>, resource: &str) -> Result<i64, MetricsError> {
    let Some(spec) = &pod.spec else { return Ok(0) };
    match container {
        None if has_pod_level_requests(spec) => pod_level_request(spec, resource)
            .ok_or_else(|| MetricsError(format!("missing pod-level request for {resource} in Pod {}", pod.name_any()))),
        _ => container_requests(pod, spec, container, resource),
    }
}

fn container_requests(
    pod: &PodView,
    spec: &PodSpecView,
    container: Option<&str>,
    resource: &str,
) -> Result<i64, MetricsError> {
    let mut total = 0i64;
    let mut found = false;
    for candidate in spec.containers.iter().chain(sidecars(spec)) {
        if container.is_some_and(|name| name != candidate.name) {
            continue;
        }
        let request = container_request(candidate, resource).ok_or_else(|| {
            let (name, pod) = (&candidate.name, pod.name_any());
            MetricsError(format!("missing request for {resource} in container {name} of Pod {pod}"))
        })?;
        (total, found) = (total.saturating_add(request), true);
    }
    match container {
        Some(name) if !found => Err(MetricsError(format!("container {name} not found in Pod {}", pod.name_any()))),
        _ => Ok(total),
    }
}

fn sidecars(spec: &PodSpecView) -> impl Iterator<Item = &ContainerView> {
    let init_containers = spec.init_containers.iter().flatten();
    init_containers.filter(|container| container.restart_policy.as_deref() == Some("Always"))
}

fn container_request(container: &ContainerView, resource: &str) -> Option<i64> {
    quantity_millis(container.resources.as_ref()?.requests.as_ref()?.get(resource)?)
}

fn has_pod_level_requests(spec: &PodSpecView) -> bool {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let is_supported = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    requests.is_some_and(|requests| requests.keys().any(|name| is_supported(name)))
}

/// Returns the request that the pod as a whole has, with its overhead. A resource that only containers request counts as
/// the scheduler counts it.
fn pod_level_request(spec: &PodSpecView, resource: &str) -> Option<i64> {
    let own = spec.resources.as_ref()?.requests.as_ref()?.get(resource).and_then(quantity_millis);
    let request = own.or_else(|| aggregated_request(spec, resource));
    let overhead = spec.overhead.as_ref().and_then(|overhead| overhead.get(resource)).and_then(quantity_millis);
    match (request, overhead) {
        (None, None) => None,
        (request, overhead) => Some(request.unwrap_or(0).saturating_add(overhead.unwrap_or(0))),
    }
}

/// Sums containers and sidecars; an init container counts with the sidecars that were started before it.
fn aggregated_request(spec: &PodSpecView, resource: &str) -> Option<i64> {
    let mut found = false;
    let mut request_of = |container: &ContainerView| {
        let request = container_request(container, resource);
        found |= request.is_some();
        request.unwrap_or(0)
    };
    let (mut started, mut initial) = (0i64, 0i64);
    for container in spec.init_containers.iter().flatten() {
        let request = request_of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            started = started.saturating_add(request);
            initial = initial.max(started);
        } else {
            initial = initial.max(started.saturating_add(request));
        }
    }
    let running = spec.containers.iter().fold(started, |sum, container| sum.saturating_add(request_of(container)));
    found.then_some(running.max(initial))
}

/// Converts a quantity into thousandths.
pub(super) fn quantity_millis(quantity: &ApiQuantity) -> Option<i64> {
    Quantity::parse(&quantity.0).map(Quantity::millis)
}

/// Formats thousandths; `binary` prefers the suffixes of memory.
pub(super) fn millis_quantity(millis: i64, binary: bool) -> ApiQuantity {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let (mut bytes, mut power) = (millis / 1000, 0);
    if binary && millis % 1000 == 0 && bytes.abs() >= 1024 {
        while bytes % 1024 == 0 && power + 1 < SUFFIXES.len() {
            (bytes, power) = (bytes / 1024, power + 1);
        }
        return ApiQuantity(format!("{bytes}{}", SUFFIXES.get(power).copied().unwrap_or("")));
    }
    let text = format!("{millis}m");
    ApiQuantity(Quantity::canonicalize(&text).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requests_come_from_the_pod_or_its_containers() {
        let check = |spec: Value, container, resource, expected: Result<i64, &str>| {
            let pod: PodView = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
            let request = pod_requests(&pod, container, resource).map_err(|error| error.to_string());
            assert_eq!(request, expected.map_err(str::to_owned));
        };
        let container = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}});
        let spec = json!({"containers": [container("a", "100m"), container("b", "1")], "initContainers": [sidecar]});
        check(spec.clone(), None, "cpu", Ok(1150));
        check(spec.clone(), Some("a"), "cpu", Ok(100));
        check(spec.clone(), Some("x"), "cpu", Err("container x not found in Pod p"));
        check(spec.clone(), None, "memory", Err("missing request for memory in container a of Pod p"));
        let mut whole = spec;
        whole["resources"] = json!({"requests": {"memory": "1Ki"}});
        whole["overhead"] = json!({"cpu": "10m"});
        check(whole.clone(), None, "memory", Ok(1_024_000));
        check(whole.clone(), None, "cpu", Ok(1160));
        check(whole, Some("b"), "cpu", Ok(1000));
    }

    #[test]
    fn quantities_are_canonical() {
        let check = |millis, binary, expected: &str| assert_eq!(millis_quantity(millis, binary).0, expected);
        check(120, false, "120m");
        check(2000, false, "2");
        check(5_000_000, false, "5k");
        check(1_048_576_000, true, "1Mi");
        check(1_025_000, true, "1025");
        check(1_000, true, "1");
        check(1_048_576_500, true, "1048576500m");
    }
}
