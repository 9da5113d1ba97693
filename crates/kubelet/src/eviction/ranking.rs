//! The order in which pods are evicted, and pods that use more local storage than they may.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::usage::PodUsage;
use crate::{
    eviction_thresholds::EvictionSignal,
    pod_manager::{is_mirror_pod, is_static_pod},
    quantity,
    resources::pod_requests,
};

/// Priority from which a pod is critical to the cluster.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Whether the pod is never evicted.
pub fn is_critical_pod(pod: &Pod) -> bool {
    is_static_pod(pod) || is_mirror_pod(pod) || priority(pod) >= CRITICAL_PRIORITY
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default()
}

/// Sort key of a pod, smallest evicted first: pods over their requests, then low priority, then by what they use beyond
/// their requests.
pub fn eviction_rank(pod: &Pod, usage: &PodUsage, signal: EvictionSignal) -> (bool, i32, i64) {
    let requests = pod.spec.as_ref().map(pod_requests).unwrap_or_default();
    let requested = |name: &str| requests.get(name).copied().unwrap_or_default();
    let beyond = match signal {
        EvictionSignal::MemoryAvailable => usage.total_memory() - requested("memory"),
        EvictionSignal::PidAvailable => 0,
        _ => usage.total_disk() - requested("ephemeral-storage"),
    };
    (beyond <= 0, priority(pod), -beyond)
}

/// Returns why a pod uses more local storage than it may: an emptyDir over its limit, the pod, or a container.
pub fn local_storage_violation(pod: &Pod, usage: &PodUsage) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    empty_dir_violation(spec, usage).or_else(|| pod_violation(spec, usage)).or_else(|| container_violation(spec, usage))
}

/// Whether the pod has a limit of local storage.
pub fn has_storage_limit(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.empty_dir.as_ref());
    volumes.into_iter().any(|source| source.size_limit.is_some())
        || spec.containers.iter().any(|container| storage_limit(container).is_some())
}

fn empty_dir_violation(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    spec.volumes.iter().flatten().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        let used = *usage.empty_dirs.get(&volume.name)?;
        let units = quantity::to_units(limit);
        let over = units > 0 && used > units;
        over.then(|| format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", volume.name, limit.0))
    })
}

fn storage_limit(container: &k8s_openapi::api::core::v1::Container) -> Option<(i64, String)> {
    let limit = container.resources.as_ref()?.limits.as_ref()?.get("ephemeral-storage")?;
    Some((quantity::to_units(limit), limit.0.clone()))
}

/// A pod is limited as a whole if all of its containers are.
fn pod_violation(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    let limits: Option<Vec<_>> = spec.containers.iter().map(storage_limit).collect();
    let limits = limits.filter(|limits| !limits.is_empty())?;
    let total: i64 = limits.iter().map(|(limit, _)| limit).sum();
    let text = if let [(_, only)] = limits.as_slice() { only.clone() } else { total.to_string() };
    (usage.total_disk() > total)
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {text}. "))
}

fn container_violation(spec: &PodSpec, usage: &PodUsage) -> Option<String> {
    spec.containers.iter().find_map(|container| {
        let (limit, text) = storage_limit(container)?;
        let used = *usage.disk.get(&container.name)?;
        (used > limit)
            .then(|| format!("Container {} exceeded its local ephemeral storage limit {text:?}. ", container.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    #[test]
    fn pods_over_their_requests_go_first() {
        let make = |priority: i32, request: &str| {
            let resources = json!({ "requests": { "memory": request } });
            pod(json!({ "priority": priority, "containers": [{ "name": "c", "resources": resources }] }))
        };
        let usage = PodUsage { memory: [("c".into(), 1000)].into(), ..Default::default() };
        let rank = |pod: &Pod| eviction_rank(pod, &usage, EvictionSignal::MemoryAvailable);
        let (greedy, modest, important) = (make(0, "10"), make(0, "2000"), make(5, "0"));
        let mut order = [("modest", rank(&modest)), ("important", rank(&important)), ("greedy", rank(&greedy))];
        order.sort_by_key(|(_, rank)| *rank);
        assert_eq!(order.map(|(name, _)| name), ["greedy", "important", "modest"]);
        assert!(is_critical_pod(&make(CRITICAL_PRIORITY, "0")) && !is_critical_pod(&greedy));
    }

    #[test]
    fn storage_over_a_limit_is_named() {
        let usage =
            PodUsage { disk: [("c".into(), 600)].into(), empty_dirs: [("v".into(), 500)].into(), ..Default::default() };
        let limit = |limit: &str| json!({ "limits": { "ephemeral-storage": limit } });
        let container = |resources: Value| json!([{ "name": "c", "resources": resources }]);
        let volumes = |limit: &str| json!([{ "name": "v", "emptyDir": { "sizeLimit": limit } }]);
        let check = |spec: Value| local_storage_violation(&pod(spec), &usage).unwrap_or_default();
        let over = check(json!({ "containers": container(json!({})), "volumes": volumes("400") }));
        assert_eq!(over, "Usage of EmptyDir volume \"v\" exceeds the limit \"400\". ");
        let over = check(json!({ "containers": container(limit("1k")), "volumes": volumes("1k") }));
        assert_eq!(over, "Pod ephemeral local storage usage exceeds the total limit of containers 1k. ");
        assert_eq!(check(json!({ "containers": container(limit("2k")) })), "");
    }
}
