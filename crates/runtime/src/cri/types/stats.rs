//! Messages about resource usage and metrics.

use super::*;

enumerations! {
    MetricType { Counter = 0, Gauge = 1 }
}

messages! {
    PodSandboxStatsRequest { pod_sandbox_id: string = 1 }
    PodSandboxStatsResponse { stats: ?PodSandboxStats = 1 }
    PodSandboxStatsFilter { id: string = 1, label_selector: map = 2 }
    ListPodSandboxStatsRequest { filter: ?PodSandboxStatsFilter = 1 }
    ListPodSandboxStatsResponse { stats: [PodSandboxStats] = 1 }
    StreamPodSandboxStatsRequest { filter: ?PodSandboxStatsFilter = 1 }
    StreamPodSandboxStatsResponse { pod_sandbox_stats: [PodSandboxStats] = 1 }
    PodSandboxAttributes { id: string = 1, metadata: ?PodSandboxMetadata = 2, labels: map = 3, annotations: map = 4 }
    PodSandboxStats { attributes: ?PodSandboxAttributes = 1, linux: ?LinuxPodSandboxStats = 2 }
    LinuxPodSandboxStats {
        cpu: ?CpuUsage = 1,
        memory: ?MemoryUsage = 2,
        network: ?NetworkUsage = 3,
        process: ?ProcessUsage = 4,
        containers: [ContainerStats] = 5,
        io: ?IoUsage = 6,
    }
    NetworkUsage {
        timestamp: int64 = 1,
        default_interface: ?NetworkInterfaceUsage = 2,
        interfaces: [NetworkInterfaceUsage] = 3,
    }
    NetworkInterfaceUsage {
        name: string = 1,
        rx_bytes: ?UInt64Value = 2,
        rx_errors: ?UInt64Value = 3,
        tx_bytes: ?UInt64Value = 4,
        tx_errors: ?UInt64Value = 5,
    }
    ProcessUsage { timestamp: int64 = 1, process_count: ?UInt64Value = 2 }
    FilesystemUsage {
        timestamp: int64 = 1,
        fs_id: ?FilesystemIdentifier = 2,
        used_bytes: ?UInt64Value = 3,
        inodes_used: ?UInt64Value = 4,
    }
    ContainerStatsRequest { container_id: string = 1 }
    ContainerStatsResponse { stats: ?ContainerStats = 1 }
    ListContainerStatsRequest { filter: ?ContainerStatsFilter = 1 }
    ContainerStatsFilter { id: string = 1, pod_sandbox_id: string = 2, label_selector: map = 3 }
    ListContainerStatsResponse { stats: [ContainerStats] = 1 }
    StreamContainerStatsRequest { filter: ?ContainerStatsFilter = 1 }
    StreamContainerStatsResponse { container_stats: [ContainerStats] = 1 }
    ContainerAttributes { id: string = 1, metadata: ?ContainerMetadata = 2, labels: map = 3, annotations: map = 4 }
    ContainerStats {
        attributes: ?ContainerAttributes = 1,
        cpu: ?CpuUsage = 2,
        memory: ?MemoryUsage = 3,
        writable_layer: ?FilesystemUsage = 4,
        swap: ?SwapUsage = 5,
        io: ?IoUsage = 6,
    }
    PsiStats { full: ?PsiData = 1, some: ?PsiData = 2 }
    PsiData { total: uint64 = 1, avg10: double = 2, avg60: double = 3, avg300: double = 4 }
    CpuUsage {
        timestamp: int64 = 1,
        usage_core_nano_seconds: ?UInt64Value = 2,
        usage_nano_cores: ?UInt64Value = 3,
        psi: ?PsiStats = 4,
    }
    MemoryUsage {
        timestamp: int64 = 1,
        working_set_bytes: ?UInt64Value = 2,
        available_bytes: ?UInt64Value = 3,
        usage_bytes: ?UInt64Value = 4,
        rss_bytes: ?UInt64Value = 5,
        page_faults: ?UInt64Value = 6,
        major_page_faults: ?UInt64Value = 7,
        psi: ?PsiStats = 8,
    }
    IoUsage { timestamp: int64 = 1, psi: ?PsiStats = 2 }
    SwapUsage { timestamp: int64 = 1, swap_available_bytes: ?UInt64Value = 2, swap_usage_bytes: ?UInt64Value = 3 }
    ListMetricDescriptorsRequest {}
    ListMetricDescriptorsResponse { descriptors: [MetricDescriptor] = 1 }
    MetricDescriptor { name: string = 1, help: string = 2, label_keys: [string] = 3 }
    ListPodSandboxMetricsRequest {}
    ListPodSandboxMetricsResponse { pod_metrics: [PodSandboxMetrics] = 1 }
    StreamPodSandboxMetricsRequest {}
    StreamPodSandboxMetricsResponse { pod_sandbox_metrics: [PodSandboxMetrics] = 1 }
    PodSandboxMetrics { pod_sandbox_id: string = 1, metrics: [Metric] = 2, container_metrics: [ContainerMetrics] = 3 }
    ContainerMetrics { container_id: string = 1, metrics: [Metric] = 2 }
    Metric {
        name: string = 1,
        timestamp: int64 = 2,
        metric_type: enum MetricType = 3,
        label_values: [string] = 4,
        value: ?UInt64Value = 5,
    }
}
