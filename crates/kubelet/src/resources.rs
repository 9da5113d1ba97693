//! What a pod may use: its QoS class, its control group and the numbers that the runtime is given.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use runtime::cri::types::LinuxContainerResources;

use crate::quantity;

const PERIOD: i64 = 100_000;

/// Which of `cpu` and `memory` are asked for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Every container limits both, and requests what it limits.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is.
    BestEffort,
}

impl Qos {
    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Qos::Guaranteed => "Guaranteed",
            Qos::Burstable => "Burstable",
            Qos::BestEffort => "BestEffort",
        }
    }
}

/// The class of a pod.
pub fn qos(spec: &PodSpec) -> Qos {
    let mut guaranteed = true;
    let mut any = false;
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let requests = amounts(container, |resources| resources.requests.as_ref());
        let limits = amounts(container, |resources| resources.limits.as_ref());
        any |= requests != [0, 0] || limits != [0, 0];
        let matching = requests == limits || requests == [0, 0];
        guaranteed &= limits[0] > 0 && limits[1] > 0 && matching;
    }
    match (any, guaranteed) {
        (false, _) => Qos::BestEffort,
        (true, true) => Qos::Guaranteed,
        (true, false) => Qos::Burstable,
    }
}

type List = BTreeMap<String, Quantity>;

/// Thousandths of a processor and bytes of memory.
fn amounts(container: &Container, which: impl Fn(&ResourceRequirements) -> Option<&List>) -> [i64; 2] {
    let list = container.resources.as_ref().and_then(which);
    let get = |name: &str| list.and_then(|list| list.get(name));
    [get("cpu").map_or(0, quantity::milli), get("memory").map_or(0, quantity::value)]
}

fn requests(container: &Container) -> [i64; 2] {
    let requests = amounts(container, |resources| resources.requests.as_ref());
    let limits = limits(container);
    // What is limited but not requested is requested as limited.
    [0, 1].map(|index| if requests[index] == 0 { limits[index] } else { requests[index] })
}

fn limits(container: &Container) -> [i64; 2] {
    amounts(container, |resources| resources.limits.as_ref())
}

/// The control group of a pod below `root`.
pub fn cgroup(root: &str, uid: &str, qos: Qos) -> String {
    let root = root.trim_end_matches('/');
    match qos {
        Qos::Guaranteed => format!("{root}/pod{uid}"),
        Qos::Burstable => format!("{root}/burstable/pod{uid}"),
        Qos::BestEffort => format!("{root}/besteffort/pod{uid}"),
    }
}

/// The limits of a pod's control group: the sums of its containers', if every container has one.
pub fn pod_limits(pod: &Pod) -> sys::cgroup::Limits {
    let Some(spec) = &pod.spec else { return Default::default() };
    let sum = |index: usize, of: fn(&Container) -> [i64; 2]| {
        let regular: i64 = spec.containers.iter().map(|container| of(container)[index]).sum();
        let init = spec.init_containers.iter().flatten().map(|container| of(container)[index]).max();
        regular.max(init.unwrap_or(0))
    };
    let limited = |index: usize| spec.containers.iter().all(|container| limits(container)[index] > 0);
    sys::cgroup::Limits {
        cpu_shares: Some(shares(sum(0, requests)) as u64),
        cpu_quota: limited(0).then(|| quota(sum(0, limits)) as u64),
        memory: limited(1).then(|| sum(1, limits) as u64),
        pids: None,
    }
}

fn shares(milli: i64) -> i64 {
    (milli * 1024 / 1000).clamp(2, 262_144)
}

fn quota(milli: i64) -> i64 {
    (milli * PERIOD / 1000).max(1000)
}

/// What the runtime is told about a container.
pub fn container(pod: &PodSpec, container: &Container, memory_capacity: i64) -> LinuxContainerResources {
    let [cpu_request, memory_request] = requests(container);
    let [cpu_limit, memory_limit] = limits(container);
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: if cpu_limit > 0 { quota(cpu_limit) } else { 0 },
        cpu_shares: shares(cpu_request),
        memory_limit_in_bytes: memory_limit,
        oom_score_adj: oom_score(qos(pod), memory_request, memory_capacity),
        ..Default::default()
    }
}

/// Who is killed first when memory runs out: the more it uses beyond its request.
fn oom_score(qos: Qos, memory_request: i64, capacity: i64) -> i64 {
    match qos {
        Qos::Guaranteed => -997,
        Qos::BestEffort => 1000,
        Qos::Burstable => (1000 - 1000 * memory_request / capacity.max(1)).clamp(3, 999),
    }
}

/// The value of `resourceFieldRef`, divided by `divisor` and rounded up. A missing limit is the node's capacity.
pub fn field(container: &Container, resource: &str, divisor: Option<&Quantity>, capacity: [i64; 2]) -> Option<String> {
    let (kind, name) = resource.split_once('.')?;
    let index = match name {
        "cpu" => 0,
        "memory" => 1,
        _ => return None,
    };
    let amount = match kind {
        "limits" if limits(container)[index] > 0 => limits(container)[index],
        "limits" => capacity[index],
        "requests" => requests(container)[index],
        _ => return None,
    };
    let of = if index == 0 { quantity::milli } else { quantity::value };
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
    fn classes_follow_requests_and_limits() {
        let class = |resources| qos(&spec(resources)).name();
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
    fn the_runtime_gets_upstream_s_numbers() {
        let spec = spec(
            json!({ "requests": { "cpu": "100m", "memory": "1Gi" }, "limits": { "cpu": "250m", "memory": "2Gi" } }),
        );
        let given = container(&spec, &spec.containers[0], 10 << 30);
        assert_eq!((given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes), (102, 25_000, 2 << 30));
        assert_eq!(given.oom_score_adj, 900);
        let field = |name: &str| field(&spec.containers[0], name, None, [8000, 1 << 40]);
        assert_eq!(field("limits.cpu").as_deref(), Some("1"));
        assert_eq!(field("requests.memory").as_deref(), Some("1073741824"));
        assert_eq!(field("limits.storage"), None);
    }
}
