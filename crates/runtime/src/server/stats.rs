//! Usage of containers and pods.

use std::{fs, path::PathBuf, sync::Arc};

use sys::container_cgroup::{CgroupUsage, ContainerCgroup};
use tonic::Status;

use super::{
    RuntimeServer, blocking,
    events::has_labels,
    images::{SingleAnswer, file_system_usage, single_answer},
    metrics::{METRICS, pod_metrics},
    records::{ContainerEntry, Sandbox, now},
    sandboxes::INTERFACE,
};
use crate::cri::types::*;

impl RuntimeServer {
    pub(super) async fn container_stats(
        self: &Arc<Self>,
        request: ContainerStatsRequest,
    ) -> Result<ContainerStatsResponse, Status> {
        let container = self.container(&request.container_id)?;
        let server = self.clone();
        let stats = blocking(move || server.stats_of(&container)).await?;
        Ok(ContainerStatsResponse { stats: Some(stats) })
    }

    pub(super) async fn list_container_stats(
        self: &Arc<Self>,
        request: ListContainerStatsRequest,
    ) -> Result<ListContainerStatsResponse, Status> {
        let filter = request.filter.unwrap_or_default();
        let server = self.clone();
        let stats = blocking(move || {
            let matches = |container: &&Arc<ContainerEntry>| {
                container.id.starts_with(&filter.id)
                    && container.sandbox.starts_with(&filter.pod_sandbox_id)
                    && has_labels(&container.config().labels, &filter.label_selector)
                    && container.life().is(ContainerState::ContainerRunning)
            };
            server.list_entries().iter().filter(matches).map(|container| server.stats_of(container)).collect()
        });
        Ok(ListContainerStatsResponse { stats: stats.await? })
    }

    pub(super) async fn pod_sandbox_stats(
        self: &Arc<Self>,
        request: PodSandboxStatsRequest,
    ) -> Result<PodSandboxStatsResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let server = self.clone();
        let stats = blocking(move || server.pod_stats_of(&sandbox)).await?;
        Ok(PodSandboxStatsResponse { stats: Some(stats) })
    }

    pub(super) async fn list_pod_sandbox_stats(
        self: &Arc<Self>,
        request: ListPodSandboxStatsRequest,
    ) -> Result<ListPodSandboxStatsResponse, Status> {
        let filter = request.filter.unwrap_or_default();
        let server = self.clone();
        let stats = blocking(move || {
            let matches = |sandbox: &&Arc<Sandbox>| {
                sandbox.id.starts_with(&filter.id)
                    && has_labels(&sandbox.config.labels, &filter.label_selector)
                    && sandbox.state().ready
            };
            server.list_sandboxes().iter().filter(matches).map(|sandbox| server.pod_stats_of(sandbox)).collect()
        });
        Ok(ListPodSandboxStatsResponse { stats: stats.await? })
    }

    fn stats_of(&self, container: &ContainerEntry) -> ContainerStats {
        let config = container.config();
        let usage = match container.life().is(ContainerState::ContainerRunning) {
            true => ContainerCgroup::at(&self.cgroups, &container.cgroup).usage(),
            false => CgroupUsage::default(),
        };
        let attributes = ContainerAttributes {
            id: container.id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
        };
        ContainerStats {
            attributes: Some(attributes),
            cpu: Some(cpu_usage(&usage)),
            memory: Some(memory_usage(&usage)),
            writable_layer: Some(file_system_usage(&container.directory.join("upper"))),
            swap: Some(swap_usage(&usage)),
            io: Some(IoUsage { timestamp: now(), psi: None }),
        }
    }

    fn pod_stats_of(&self, sandbox: &Sandbox) -> PodSandboxStats {
        let containers: Vec<ContainerStats> = self
            .containers_of(&sandbox.id)
            .iter()
            .filter(|container| container.life().is(ContainerState::ContainerRunning))
            .map(|container| self.stats_of(container))
            .collect();
        let parent = sandbox.config.linux.as_ref().map_or("", |linux| linux.cgroup_parent.as_str());
        // A pod without a control group of its own is the sum of its containers.
        let usage = match parent {
            "" => CgroupUsage::default(),
            _ => ContainerCgroup::at(&self.cgroups, &super::container_spec::cgroup_path(parent, "")).usage(),
        };
        let attributes = PodSandboxAttributes {
            id: sandbox.id.clone(),
            metadata: sandbox.config.metadata.clone(),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
        };
        let process = ProcessUsage { timestamp: now(), process_count: usage.pids.map(|value| UInt64Value { value }) };
        let linux = LinuxPodSandboxStats {
            cpu: Some(cpu_usage(&usage)),
            memory: Some(memory_usage(&usage)),
            network: network_usage(sandbox),
            process: Some(process),
            containers,
            io: Some(IoUsage { timestamp: now(), psi: None }),
        };
        PodSandboxStats { attributes: Some(attributes), linux: Some(linux) }
    }

    pub(super) async fn stream_container_stats(
        self: &Arc<Self>,
        request: StreamContainerStatsRequest,
    ) -> Result<SingleAnswer<StreamContainerStatsResponse>, Status> {
        let listed = self.list_container_stats(ListContainerStatsRequest { filter: request.filter }).await?;
        Ok(single_answer(StreamContainerStatsResponse { container_stats: listed.stats }))
    }

    pub(super) async fn stream_pod_sandbox_stats(
        self: &Arc<Self>,
        request: StreamPodSandboxStatsRequest,
    ) -> Result<SingleAnswer<StreamPodSandboxStatsResponse>, Status> {
        let listed = self.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter: request.filter }).await?;
        Ok(single_answer(StreamPodSandboxStatsResponse { pod_sandbox_stats: listed.stats }))
    }

    pub(super) async fn list_metric_descriptors(
        &self,
        _: ListMetricDescriptorsRequest,
    ) -> Result<ListMetricDescriptorsResponse, Status> {
        let descriptors = METRICS.iter().map(|(name, help, _)| MetricDescriptor {
            name: (*name).into(),
            help: (*help).into(),
            label_keys: vec!["id".into(), "name".into()],
        });
        Ok(ListMetricDescriptorsResponse { descriptors: descriptors.collect() })
    }

    pub(super) async fn list_pod_sandbox_metrics(
        self: &Arc<Self>,
        _: ListPodSandboxMetricsRequest,
    ) -> Result<ListPodSandboxMetricsResponse, Status> {
        let listed = self.list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter: None }).await?;
        Ok(ListPodSandboxMetricsResponse { pod_metrics: listed.stats.iter().map(pod_metrics).collect() })
    }

    pub(super) async fn stream_pod_sandbox_metrics(
        self: &Arc<Self>,
        _: StreamPodSandboxMetricsRequest,
    ) -> Result<SingleAnswer<StreamPodSandboxMetricsResponse>, Status> {
        let listed = self.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await?;
        Ok(single_answer(StreamPodSandboxMetricsResponse { pod_sandbox_metrics: listed.pod_metrics }))
    }
}

fn number(value: Option<u64>) -> Option<UInt64Value> {
    value.map(|value| UInt64Value { value })
}

fn cpu_usage(usage: &CgroupUsage) -> CpuUsage {
    let used = number(usage.cpu_nanoseconds);
    CpuUsage { timestamp: now(), usage_core_nano_seconds: used, usage_nano_cores: None, psi: None }
}

fn memory_usage(usage: &CgroupUsage) -> MemoryUsage {
    let working_set = usage.working_set();
    let available = usage.memory_limit.and_then(|limit| Some(limit.saturating_sub(working_set?)));
    MemoryUsage {
        timestamp: now(),
        working_set_bytes: number(working_set),
        available_bytes: number(available),
        usage_bytes: number(usage.memory),
        rss_bytes: number(usage.memory.map(|_| usage.rss)),
        page_faults: number(usage.memory.map(|_| usage.page_faults)),
        major_page_faults: number(usage.memory.map(|_| usage.major_page_faults)),
        psi: None,
    }
}

fn swap_usage(usage: &CgroupUsage) -> SwapUsage {
    let available = usage.swap_limit.and_then(|limit| Some(limit.saturating_sub(usage.swap?)));
    SwapUsage { timestamp: now(), swap_available_bytes: number(available), swap_usage_bytes: number(usage.swap) }
}

/// Counters of the links in the pod's network namespace, by `/proc/PID/net/dev`.
fn network_usage(sandbox: &Sandbox) -> Option<NetworkUsage> {
    let state = sandbox.state();
    let path = PathBuf::from(format!("/proc/{}/net/dev", state.pid));
    let text = fs::read_to_string(path).ok().filter(|_| state.attached)?;
    let interfaces: Vec<NetworkInterfaceUsage> = text.lines().filter_map(parse_link).collect();
    let default_interface = interfaces.iter().find(|link| link.name == INTERFACE).cloned();
    let others = interfaces.into_iter().filter(|link| link.name != INTERFACE && link.name != "lo").collect();
    Some(NetworkUsage { timestamp: now(), default_interface, interfaces: others })
}

fn parse_link(line: &str) -> Option<NetworkInterfaceUsage> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters.split_whitespace().filter_map(|counter| counter.parse().ok()).collect();
    let counter = |index: usize| number(counters.get(index).copied());
    Some(NetworkInterfaceUsage {
        name: name.trim().into(),
        rx_bytes: counter(0),
        rx_errors: counter(2),
        tx_bytes: counter(8),
        tx_errors: counter(10),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_parsed() {
        let link = parse_link("  eth0: 10 1 2 0 0 0 0 0 20 3 4 0 0 0 0 0").unwrap();
        let value = |number: Option<UInt64Value>| number.map(|number| number.value);
        assert_eq!(link.name, "eth0");
        assert_eq!([link.rx_bytes, link.rx_errors, link.tx_bytes, link.tx_errors].map(value), [10, 2, 20, 4].map(Some));
        assert_eq!(parse_link("Inter-|   Receive"), None);
    }
}
