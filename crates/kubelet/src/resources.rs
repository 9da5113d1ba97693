//! Pod resources by upstream's rules: QoS class, requests and limits of containers and pods, cgroup path and limits, CRI
//! container resources.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use runtime::cri::types::{HugepageLimit, LinuxContainerResources};

use crate::{pod_spec::is_sidecar, quantity};

const CPU_PERIOD: i64 = 100_000;
const HUGE_PAGES_PREFIX: &str = "hugepages-";
/// Priority from which a pod is critical to the node.
const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

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

/// Amounts by resource name: CPU in millicores, everything else in units.
pub type ResourceAmounts = BTreeMap<String, i64>;

/// Resources of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeResources {
    /// CPU in millicores.
    pub cpu_millis: i64,
    /// Memory in bytes.
    pub memory: i64,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage: i64,
    /// Number of pods.
    pub pods: i64,
}

impl NodeResources {
    /// Returns the amount of a resource.
    pub fn amount(&self, name: &str) -> Option<i64> {
        match name {
            "cpu" => Some(self.cpu_millis),
            "memory" => Some(self.memory),
            "ephemeral-storage" => Some(self.ephemeral_storage),
            "pods" => Some(self.pods),
            _ => None,
        }
    }
}

type ResourceList = BTreeMap<String, Quantity>;

fn to_amounts(list: Option<&ResourceList>) -> ResourceAmounts {
    let amount = |name: &str, value: &Quantity| match name {
        "cpu" => quantity::to_millis(value),
        _ => quantity::to_units(value),
    };
    list.into_iter().flatten().map(|(name, value)| (name.clone(), amount(name, value))).collect()
}

/// Returns the limits of a container or pod.
fn limits_of(resources: Option<&ResourceRequirements>) -> ResourceAmounts {
    to_amounts(resources.and_then(|resources| resources.limits.as_ref()))
}

/// Returns the requests of a container or pod; a limit without a request is also the request.
fn requests_of(resources: Option<&ResourceRequirements>) -> ResourceAmounts {
    let mut requests = to_amounts(resources.and_then(|resources| resources.requests.as_ref()));
    for (name, limit) in limits_of(resources) {
        requests.entry(name).or_insert(limit);
    }
    requests
}

fn add_amounts(total: &mut ResourceAmounts, more: &ResourceAmounts) {
    more.iter().for_each(|(name, amount)| *total.entry(name.clone()).or_default() += amount);
}

fn raise_to_maximum(total: &mut ResourceAmounts, other: &ResourceAmounts) {
    for (name, amount) in other {
        let entry = total.entry(name.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

/// Aggregates over a pod: regular containers and sidecars run at once; an init container runs beside the sidecars
/// before it; pod-level resources replace the sums; the overhead is added.
fn aggregate(spec: &PodSpec, of: fn(Option<&ResourceRequirements>) -> ResourceAmounts) -> ResourceAmounts {
    let mut total = ResourceAmounts::new();
    for container in &spec.containers {
        add_amounts(&mut total, &of(container.resources.as_ref()));
    }
    let (mut sidecars, mut highest) = (ResourceAmounts::new(), ResourceAmounts::new());
    for container in spec.init_containers.iter().flatten() {
        let own = of(container.resources.as_ref());
        let mut running = sidecars.clone();
        add_amounts(&mut running, &own);
        if is_sidecar(container) {
            add_amounts(&mut total, &own);
            sidecars = running.clone();
        }
        raise_to_maximum(&mut highest, &running);
    }
    raise_to_maximum(&mut total, &highest);
    total.extend(of(spec.resources.as_ref()));
    total
}

/// Returns the requests of a pod with its overhead.
pub fn pod_requests(spec: &PodSpec) -> ResourceAmounts {
    let mut total = aggregate(spec, requests_of);
    add_amounts(&mut total, &to_amounts(spec.overhead.as_ref()));
    total
}

/// Returns the limits of a pod with its overhead, which counts only where there is a limit.
fn pod_limits(spec: &PodSpec) -> ResourceAmounts {
    let mut total = aggregate(spec, limits_of);
    for (name, amount) in to_amounts(spec.overhead.as_ref()) {
        total.entry(name).and_modify(|limit| *limit += amount);
    }
    total
}

/// Returns the QoS class of a pod.
pub fn pod_qos_class(spec: &PodSpec) -> QosClass {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let pod_level = spec.resources.as_ref().filter(|resources| {
        resources.requests.as_ref().is_some_and(|list| !list.is_empty())
            || resources.limits.as_ref().is_some_and(|list| !list.is_empty())
    });
    let resources: Vec<Option<&ResourceRequirements>> = match pod_level {
        Some(resources) => vec![Some(resources)],
        None => containers.map(|container| container.resources.as_ref()).collect(),
    };
    let amount = |list: &ResourceAmounts, name: &str| list.get(name).copied().unwrap_or(0);
    let (mut guaranteed, mut any) = (true, false);
    for resources in resources {
        let requests = to_amounts(resources.and_then(|resources| resources.requests.as_ref()));
        let limits = limits_of(resources);
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(&requests, name), amount(&limits, name));
            any |= request > 0 || limit > 0;
            guaranteed &= limit > 0 && (request == 0 || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
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

/// Returns the limits of a pod's cgroup. A resource is limited where the pod or every one of its containers has a limit.
pub fn pod_cgroup_limits(pod: &Pod) -> sys::cgroup::CgroupLimits {
    let Some(spec) = &pod.spec else { return Default::default() };
    let (requests, limits) = (pod_requests(spec), pod_limits(spec));
    let pod_level = limits_of(spec.resources.as_ref());
    let containers = || spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let has_limit = |container: &Container, name: &str| {
        limits_of(container.resources.as_ref()).get(name).is_some_and(|limit| *limit > 0)
    };
    let limit = |name: &str| {
        let limited = pod_level.contains_key(name) || containers().all(|container| has_limit(container, name));
        limits.get(name).copied().filter(|limit| limited && *limit > 0)
    };
    sys::cgroup::CgroupLimits {
        cpu_shares: Some(milli_cpu_to_shares(requests.get("cpu").copied().unwrap_or(0)) as u64),
        cpu_quota: limit("cpu").map(|milli| milli_cpu_to_quota(milli) as u64),
        memory: limit("memory").map(|bytes| bytes as u64),
        pids: None,
    }
}

fn milli_cpu_to_shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

fn milli_cpu_to_quota(milli: i64) -> i64 {
    (milli.saturating_mul(CPU_PERIOD) / 1000).max(1000)
}

/// Returns the number of CPUs that a container of a guaranteed pod has for itself; none if it asks for no whole ones.
pub fn exclusive_cpu_count(container: &Container) -> Option<usize> {
    let millis = requests_of(container.resources.as_ref()).get("cpu").copied().unwrap_or(0);
    usize::try_from(millis / 1000).ok().filter(|count| *count > 0 && millis % 1000 == 0)
}

/// Builds the CRI resources of a container.
pub fn container_resources(pod: &PodSpec, container: &Container, memory_capacity: i64) -> LinuxContainerResources {
    let requests = requests_of(container.resources.as_ref());
    let limits = limits_of(container.resources.as_ref());
    let amount = |list: &ResourceAmounts, name: &str| list.get(name).copied().unwrap_or(0);
    let cpu_limit = amount(&limits, "cpu");
    LinuxContainerResources {
        cpu_period: CPU_PERIOD,
        cpu_quota: if cpu_limit > 0 { milli_cpu_to_quota(cpu_limit) } else { 0 },
        cpu_shares: milli_cpu_to_shares(amount(&requests, "cpu")),
        memory_limit_in_bytes: amount(&limits, "memory"),
        oom_score_adj: oom_score_adjust(pod, amount(&requests, "memory"), memory_capacity),
        hugepage_limits: hugepage_limits(&limits),
        ..Default::default()
    }
}

/// Returns the limits of huge pages; CRI names page sizes in units of a thousand and means 1,024.
fn hugepage_limits(limits: &ResourceAmounts) -> Vec<HugepageLimit> {
    let limit = |(name, amount): (&String, &i64)| {
        let size = name.strip_prefix(HUGE_PAGES_PREFIX)?.strip_suffix('i')?;
        Some(HugepageLimit { page_size: format!("{size}B"), limit: u64::try_from(*amount).ok()? })
    };
    limits.iter().filter_map(limit).collect()
}

/// Returns the OOM score adjustment, as upstream.
fn oom_score_adjust(spec: &PodSpec, memory_request: i64, capacity: i64) -> i64 {
    if spec.priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY) {
        return -997;
    }
    match pod_qos_class(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => (1000 - 1000_i64.saturating_mul(memory_request) / capacity.max(1)).clamp(3, 999),
    }
}

/// Returns the value of a `resourceFieldRef`, divided by `divisor` and rounded up; a missing limit is what the node can
/// allocate. `None` for a resource that the downward API does not show.
pub fn resource_field_value(
    container: &Container,
    resource: &str,
    divisor: Option<&Quantity>,
    allocatable: &NodeResources,
) -> Option<String> {
    let (kind, name) = resource.split_once('.')?;
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with(HUGE_PAGES_PREFIX) {
        return None;
    }
    let limit = limits_of(container.resources.as_ref()).get(name).copied().filter(|limit| *limit > 0);
    let amount = match kind {
        "limits" => limit.or_else(|| allocatable.amount(name)).unwrap_or(0),
        "requests" => requests_of(container.resources.as_ref()).get(name).copied().unwrap_or(0),
        _ => return None,
    };
    let unit = if name == "cpu" { 1000 } else { 1 };
    let of = if name == "cpu" { quantity::to_millis } else { quantity::to_units };
    let divisor = divisor.map(of).filter(|divisor| *divisor > 0).unwrap_or(unit);
    Some(amount.saturating_add(divisor - 1).div_euclid(divisor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(resources: Value) -> PodSpec {
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
        let mut pod_level = spec(json!({}));
        pod_level.resources =
            Some(serde_json::from_value(json!({ "limits": { "cpu": "1", "memory": "1Gi" } })).unwrap());
        assert_eq!(pod_qos_class(&pod_level), QosClass::Guaranteed);
    }

    #[test]
    fn container_resources_match_upstream() {
        let spec = spec(json!({ "requests": { "cpu": "100m", "memory": "1Gi" },
            "limits": { "cpu": "250m", "memory": "2Gi", "hugepages-2Mi": "4Mi" } }));
        let given = container_resources(&spec, &spec.containers[0], 10 << 30);
        assert_eq!((given.cpu_shares, given.cpu_quota, given.memory_limit_in_bytes), (102, 25_000, 2 << 30));
        assert_eq!(given.oom_score_adj, 900);
        assert_eq!(given.hugepage_limits, [HugepageLimit { page_size: "2MB".into(), limit: 4 << 20 }]);
        let node = NodeResources { cpu_millis: 8000, memory: 1 << 40, ephemeral_storage: 7 << 30, pods: 110 };
        let field = |name: &str| resource_field_value(&spec.containers[0], name, None, &node);
        assert_eq!(field("limits.cpu").as_deref(), Some("1"));
        assert_eq!(field("requests.memory").as_deref(), Some("1073741824"));
        assert_eq!(field("limits.ephemeral-storage").as_deref(), Some("7516192768"));
        assert_eq!(field("limits.hugepages-2Mi").as_deref(), Some("4194304"));
        assert_eq!(field("limits.storage"), None);
    }

    #[test]
    fn sidecars_are_summed_and_init_containers_maximised() {
        let container = |name: &str, cpu: &str, limit: Option<&str>, policy: Option<&str>| {
            let mut resources = json!({ "requests": { "cpu": cpu } });
            if let Some(limit) = limit {
                resources["limits"] = json!({ "cpu": limit });
            }
            json!({ "name": name, "resources": resources, "restartPolicy": policy })
        };
        let limits = |init: Value, regular: Value, overhead: Value| {
            let spec = json!({ "initContainers": init, "containers": regular, "overhead": overhead });
            let limits = pod_cgroup_limits(&serde_json::from_value(json!({ "spec": spec })).unwrap());
            (limits.cpu_shares, limits.cpu_quota)
        };
        let sidecar = container("s", "1", Some("1"), Some("Always"));
        let regular = container("c", "1", Some("2"), None);
        assert_eq!(limits(json!([sidecar]), json!([regular]), json!({})), (Some(2048), Some(300_000)));
        let init = container("i", "4", Some("4"), None);
        assert_eq!(limits(json!([sidecar, init]), json!([regular]), json!({})), (Some(5120), Some(500_000)));
        let unlimited = container("s", "1", None, Some("Always"));
        assert_eq!(limits(json!([unlimited]), json!([regular]), json!({})), (Some(2048), None));
        let overhead = json!({ "cpu": "500m" });
        assert_eq!(limits(json!([]), json!([regular]), overhead), (Some(1536), Some(250_000)));
    }
}
