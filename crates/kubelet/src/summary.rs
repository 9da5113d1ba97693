//! The `/stats/summary` endpoint: usage of the node, its pods and containers as JSON.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use runtime::cri::{
    CriError,
    types::{ContainerStats, CpuUsage, MemoryUsage, NetworkUsage, PodSandboxStats},
};
use serde_json::{Map, Value, json};

use crate::{blocking::run_blocking, context::KubeletContext, resource_metrics::NodeUsage, runtime_status::labels};

/// Collects the summary.
pub async fn collect_summary(kubelet: &KubeletContext, node_name: &str) -> Result<Value, CriError> {
    let (containers, sandboxes) = tokio::try_join!(kubelet.cri.container_stats(), kubelet.cri.sandbox_stats())?;
    let root_dir = kubelet.root_dir.clone();
    let (usage, fs) = run_blocking(move || (NodeUsage::read().ok(), file_system(&root_dir))).await;
    let node = json!({
        "nodeName": node_name,
        "startTime": kubelet.start_time.to_string(),
        "cpu": usage.as_ref().map(|usage| json!({
            "time": time(usage.at), "usageCoreNanoSeconds": (usage.cpu * 1e9) as u64 })),
        "memory": usage.as_ref().map(|usage| json!({
            "time": time(usage.at), "workingSetBytes": usage.memory,
            "availableBytes": (kubelet.capacity.memory as u64).saturating_sub(usage.memory) })),
        "fs": fs,
        "runtime": { "imageFs": fs },
    });
    Ok(json!({ "node": node, "pods": pod_summaries(kubelet, &sandboxes, &containers) }))
}

fn pod_summaries(kubelet: &KubeletContext, sandboxes: &[PodSandboxStats], containers: &[ContainerStats]) -> Vec<Value> {
    let mut by_pod: HashMap<&str, Vec<&ContainerStats>> = HashMap::new();
    for stats in containers {
        if let Some(uid) = stats.attributes.as_ref().and_then(|attributes| attributes.labels.get(labels::POD_UID)) {
            by_pod.entry(uid).or_default().push(stats);
        }
    }
    let mut pods: BTreeMap<String, Value> = BTreeMap::new();
    for sandbox in sandboxes {
        let Some(attributes) = &sandbox.attributes else { continue };
        let Some(metadata) = &attributes.metadata else { continue };
        let known = kubelet.pods.get(&metadata.namespace, &metadata.name);
        let started = known.and_then(|pod| pod.status.as_ref()?.start_time.as_ref().map(|time| time.0.to_string()));
        let linux = sandbox.linux.clone().unwrap_or_default();
        let own = by_pod.remove(metadata.uid.as_str()).unwrap_or_default();
        let summary = json!({
            "podRef": { "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid },
            "startTime": started,
            "containers": own.iter().filter_map(|stats| container_summary(stats)).collect::<Vec<_>>(),
            "cpu": cpu(linux.cpu.as_ref()),
            "memory": memory(linux.memory.as_ref()),
            "network": network(linux.network.as_ref()),
            "process_stats": linux.process.and_then(|usage| Some(json!({ "process_count": usage.process_count?.value }))),
        });
        pods.insert(metadata.uid.clone(), without_nulls(summary));
    }
    pods.into_values().collect()
}

fn container_summary(stats: &ContainerStats) -> Option<Value> {
    let name = stats.attributes.as_ref()?.labels.get(labels::CONTAINER)?;
    let layer = stats.writable_layer.as_ref();
    let root = layer.map(|usage| {
        json!({ "time": time(usage.timestamp), "usedBytes": usage.used_bytes.as_ref().map(|value| value.value),
            "inodesUsed": usage.inodes_used.as_ref().map(|value| value.value) })
    });
    Some(without_nulls(json!({
        "name": name, "cpu": cpu(stats.cpu.as_ref()), "memory": memory(stats.memory.as_ref()), "rootfs": root })))
}

fn cpu(usage: Option<&CpuUsage>) -> Option<Value> {
    let usage = usage?;
    Some(without_nulls(json!({
        "time": time(usage.timestamp),
        "usageNanoCores": usage.usage_nano_cores.as_ref().map(|value| value.value),
        "usageCoreNanoSeconds": usage.usage_core_nano_seconds.as_ref().map(|value| value.value) })))
}

fn memory(usage: Option<&MemoryUsage>) -> Option<Value> {
    let usage = usage?;
    let value = |value: &Option<runtime::cri::types::UInt64Value>| value.as_ref().map(|value| value.value);
    Some(without_nulls(json!({
        "time": time(usage.timestamp),
        "availableBytes": value(&usage.available_bytes).filter(|bytes| *bytes > 0),
        "usageBytes": value(&usage.usage_bytes),
        "workingSetBytes": value(&usage.working_set_bytes),
        "rssBytes": value(&usage.rss_bytes),
        "pageFaults": value(&usage.page_faults),
        "majorPageFaults": value(&usage.major_page_faults) })))
}

fn network(usage: Option<&NetworkUsage>) -> Option<Value> {
    let usage = usage?;
    let interface = usage.default_interface.as_ref()?;
    let value = |value: &Option<runtime::cri::types::UInt64Value>| value.as_ref().map(|value| value.value);
    Some(without_nulls(json!({
        "time": time(usage.timestamp), "name": interface.name,
        "rxBytes": value(&interface.rx_bytes), "rxErrors": value(&interface.rx_errors),
        "txBytes": value(&interface.tx_bytes), "txErrors": value(&interface.tx_errors) })))
}

/// Returns the usage of the file system that a path is on.
fn file_system(path: &std::path::Path) -> Option<Value> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let (capacity, available) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
    Some(json!({
        "time": Timestamp::now().to_string(), "capacityBytes": capacity, "availableBytes": available,
        "usedBytes": (stat.f_blocks - stat.f_bfree) * stat.f_frsize,
        "inodes": stat.f_files, "inodesFree": stat.f_ffree, "inodesUsed": stat.f_files.saturating_sub(stat.f_ffree) }))
}

fn time(nanoseconds: i64) -> Option<String> {
    Timestamp::from_nanosecond(nanoseconds.into()).ok().map(|time| time.to_string())
}

/// Leaves out fields without a value, as Go's `omitempty` does.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            Value::Object(fields.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use runtime::cri::types::{ContainerAttributes, PodSandboxAttributes, PodSandboxMetadata, UInt64Value};

    use super::*;

    #[tokio::test]
    async fn containers_are_listed_below_their_pods() {
        let kubelet = KubeletContext::unreachable();
        let metadata =
            PodSandboxMetadata { name: "p".into(), namespace: "ns".into(), uid: "u".into(), ..Default::default() };
        let attributes = PodSandboxAttributes { metadata: Some(metadata), ..Default::default() };
        let sandbox = PodSandboxStats { attributes: Some(attributes), linux: None };
        let labels = [(labels::POD_UID, "u"), (labels::CONTAINER, "c")];
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string())).into();
        let memory = MemoryUsage { working_set_bytes: Some(UInt64Value { value: 7 }), ..Default::default() };
        let container = ContainerStats {
            attributes: Some(ContainerAttributes { labels, ..Default::default() }),
            memory: Some(memory),
            ..Default::default()
        };
        let pods = pod_summaries(&kubelet, &[sandbox], &[container]);
        assert_eq!(pods[0]["podRef"], json!({ "name": "p", "namespace": "ns", "uid": "u" }));
        assert_eq!(pods[0]["containers"][0]["memory"]["workingSetBytes"], 7);
        assert!(pods[0].get("cpu").is_none());
    }
}
