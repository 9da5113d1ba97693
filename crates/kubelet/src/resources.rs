//! Pod resources: QoS class, cgroup path and limits, CRI container resources.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use runtime::cri::types::LinuxContainerResources;

use crate::quantity;

const CPU_PERIOD: i64 = 100_000;

/// QoS class of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QosClass {
    /// Every container has equal requests and limits for CPU and memory.
    Guaranteed,
    /// At least one request or limit is set.
    Burstable,
    /// No requests or limits are set.
    BestEffort,
}

impl QosClass {
    /// Returns the name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// Returns the QoS class of a pod.
pub fn pod_qos_class(spec: &PodSpec) -> QosClass {
    let mut guaranteed = true;
    let mut any = false;
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let requests = cpu_and_memory(container, |resources| resources.requests.as_ref());
        let limits = cpu_and_memory(container, |resources| resources.limits.as_ref());
        any |= requests != [0, 0] || limits != [0, 0];
        let matching = requests == limits || requests == [0, 0];
        guaranteed &= limits[0] > 0 && limits[1] > 0 && matching;
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

type ResourceList = BTreeMap<String, Quantity>;

/// Returns CPU in millicores and memory in bytes.
fn cpu_and_memory(container: &Container, which: impl Fn(&ResourceRequirements) -> Option<&ResourceList>) -> [i64; 2] {
    let list = container.resources.as_ref().and_then(which);
    let get = |name: &str| list.and_then(|list| list.get(name));
    [get("cpu").map_or(0, quantity::to_millis), get("memory").map_or(0, quantity::to_units)]
}

fn container_requests(container: &Container) -> [i64; 2] {
    let requests = cpu_and_memory(container, |resources| resources.requests.as_ref());
    let limits = container_limits(container);
    // A limit without a request is also the request.
    [0, 1].map(|index| if requests[index] == 0 { limits[index] } else { requests[index] })
}

fn container_limits(container: &Container) -> [i64; 2] {
    cpu_and_memory(container, |resources| resources.limits.as_ref())
}

/// Returns the path of a pod's cgroup below `root`.
pub fn pod_cgroup_path(root: &str, uid: &str, qos: QosClass) -> String {
    let root = root.trim_end_matches('/');
    match qos {
        QosClass::Guaranteed => format!("{root}/pod{uid}"),
        QosClass::Burstable => format!("{root}/burstable/pod{uid}"),
        QosClass::BestEffort => format!("{root}/besteffort/pod{uid}"),
    }
}

/// Returns the limits of a pod's cgroup: the sums over its containers, where every container has a limit.
pub fn pod_cgroup_limits(pod: &Pod) -> sys::cgroup::CgroupLimits {
    let Some(spec) = &pod.spec else { return Default::default() };
    let sum = |index: usize, of: fn(&Container) -> [i64; 2]| {
        let regular: i64 = spec.containers.iter().map(|container| of(container)[index]).sum();
        let init = spec.init_containers.iter().flatten().map(|container| of(container)[index]).max();
        regular.max(init.unwrap_or(0))
    };
    let limited = |index: usize| spec.containers.iter().all(|container| container_limits(container)[index] > 0);
    sys::cgroup::CgroupLimits {
        cpu_shares: Some(milli_cpu_to_shares(sum(0, container_requests)) as u64),
        cpu_quota: limited(0).then(|| milli_cpu_to_quota(sum(0, container_limits)) as u64),
        memory: limited(1).then(|| sum(1, container_limits) as u64),
        pids: None,
    }
}

fn milli_cpu_to_shares(milli: i64) -> i64 {
    (milli * 1024 / 1000).clamp(2, 262_144)
}

fn milli_cpu_to_quota(milli: i64) -> i64 {
    (milli * CPU_PERIOD / 1000).max(1000)
}

/// Builds the CRI resources of a container.
pub fn container_resources(pod: &PodSpec, container: &Container, memory_capacity: i64) -> LinuxContainerResources {
    let [cpu_request, memory_request] = container_requests(container);
    let [cpu_limit, memory_limit] = container_limits(container);
    LinuxContainerResources {
        cpu_period: CPU_PERIOD,
        cpu_quota: if cpu_limit > 0 { milli_cpu_to_quota(cpu_limit) } else { 0 },
        cpu_shares: milli_cpu_to_shares(cpu_request),
        memory_limit_in_bytes: memory_limit,
        oom_score_adj: oom_score_adjust(pod_qos_class(pod), memory_request, memory_capacity),
        ..Default::default()
    }
}

/// Returns the OOM score adjustment, as upstream.
fn oom_score_adjust(qos: QosClass, memory_request: i64, capacity: i64) -> i64 {
    match qos {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => (1000 - 1000 * memory_request / capacity.max(1)).clamp(3, 999),
    }
}

/// Returns the value of a `resourceFieldRef`, divided by `divisor` and rounded up; a missing limit is the node's
/// capacity.
pub fn resource_field_value(
    container: &Container,
    resource: &str,
    divisor: Option<&Quantity>,
    capacity: [i64; 2],
) -> Option<String> {
    let (kind, name) = resource.split_once('.')?;
    let index = match name {
        "cpu" => 0,
        "memory" => 1,
        _ => return None,
    };
    let amount = match kind {
        "limits" if container_limits(container)[index] > 0 => container_limits(container)[index],
        "limits" => capacity[index],
        "requests" => container_requests(container)[index],
        _ => return None,
    };
    let of = if index == 0 { quantity::to_millis } else { quantity::to_units };
    let unit = if index == 0 { 1000 } else { 1 };
    let divisor = divisor.map_or(unit, of);
    let divisor = if divisor == 0 { unit } else { divisor };
    Some(((amount + divisor - 1) / divisor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(resources: serde_json::Value) -> PodSpec {
        serde_json::from_value(json!({ "containers": [{ "name": "c", "resources": resources }] })).unwrap()
    }

    #[test]
    fn qos_class_depends_on_requests_and_limits() {
        let class = |resources| pod_qos_class(&spec(resources)).as_str();
        assert_eq!(class(json!({})), "BestEffort");
        assert_eq!(class(json!({ "requests": { "cpu": "100m" } })), "Burstable");
        assert_eq!(class(json!({ "limits": { "cpu": "1", "memory": "1Gi" } })), "Guaranteed");
        assert_eq!(
            class(json!({ "limits": { "cpu": "1", "memory": "1Gi" }, "requests": { "cpu": "500m", "memory": "1Gi" } })),
            "Burstable"
        );
        assert_eq!(class(json!({ "limits": { "memory": "1Gi" } })), "Burstable");
    }

    #[test]
    fn container_resources_match_upstream() {
        let spec = spec(
            json!({ "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "cpu": "250m", "memory": "2Gi" } }),
        );
        let given = container_resources(&spec, &spec.containers[0], 10 << 30);
        assert_eq!((given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes), (102, 25_000, 2 << 30));
        assert_eq!(given.oom_score_adj, 900);
        let field = |name: &str| resource_field_value(&spec.containers[0], name, None, [8000, 1 << 40]);
        assert_eq!(field("limits.cpu").as_deref(), Some("1"));
        assert_eq!(field("requests.memory").as_deref(), Some("1073741824"));
        assert_eq!(field("limits.storage"), None);
    }
}
