//! Metrics of pods for the kubelet's `/metrics/cadvisor`, made from their stats.

use super::records::now;
use crate::cri::types::*;

/// Name, help and type of each metric.
pub const METRICS: [(&str, &str, MetricType); 4] = [
    ("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", MetricType::Counter),
    ("container_memory_usage_bytes", "Current memory usage in bytes, including all memory.", MetricType::Gauge),
    ("container_memory_working_set_bytes", "Current working set in bytes.", MetricType::Gauge),
    ("container_memory_rss", "Size of RSS in bytes.", MetricType::Gauge),
];

/// The metrics of a pod and of its containers.
pub fn pod_metrics(stats: &PodSandboxStats) -> PodSandboxMetrics {
    let id = stats.attributes.as_ref().map(|attributes| attributes.id.clone()).unwrap_or_default();
    let linux = stats.linux.clone().unwrap_or_default();
    let container_metrics = linux.containers.iter().map(|container| {
        let attributes = container.attributes.clone().unwrap_or_default();
        let name = attributes.metadata.map(|metadata| metadata.name).unwrap_or_default();
        let metrics = metrics(&attributes.id, &name, container.cpu.as_ref(), container.memory.as_ref());
        ContainerMetrics { container_id: attributes.id, metrics }
    });
    PodSandboxMetrics {
        metrics: metrics(&id, "POD", linux.cpu.as_ref(), linux.memory.as_ref()),
        container_metrics: container_metrics.collect(),
        pod_sandbox_id: id,
    }
}

fn metrics(id: &str, name: &str, cpu: Option<&CpuUsage>, memory: Option<&MemoryUsage>) -> Vec<Metric> {
    let seconds = cpu.and_then(|cpu| cpu.usage_core_nano_seconds.clone()).map(|used| used.value / 1_000_000_000);
    let bytes = |pick: fn(&MemoryUsage) -> Option<UInt64Value>| memory.and_then(pick).map(|value| value.value);
    let values = [
        seconds,
        bytes(|memory| memory.usage_bytes.clone()),
        bytes(|memory| memory.working_set_bytes.clone()),
        bytes(|memory| memory.rss_bytes.clone()),
    ];
    let known = METRICS.iter().zip(values).filter_map(|(metric, value)| Some((metric, value?)));
    known
        .map(|((metric, _, kind), value)| Metric {
            name: (*metric).into(),
            timestamp: now(),
            metric_type: *kind as i32,
            label_values: vec![id.into(), name.into()],
            value: Some(UInt64Value { value }),
        })
        .collect()
}
