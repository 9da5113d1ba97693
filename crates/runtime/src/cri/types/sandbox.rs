//! Messages about pod sandboxes.

use super::*;

enumerations! {
    Protocol { Tcp = 0, Udp = 1, Sctp = 2 }
    NamespaceMode { Pod = 0, Container = 1, Node = 2, Target = 3 }
    PodSandboxState { SandboxReady = 0, SandboxNotready = 1 }
    ProfileType { RuntimeDefault = 0, Unconfined = 1, Localhost = 2 }
}

messages! {
    DnsConfig { servers: [string] = 1, searches: [string] = 2, options: [string] = 3 }
    PortMapping { protocol: enum Protocol = 1, container_port: int32 = 2, host_port: int32 = 3, host_ip: string = 4 }
    IdMapping { host_id: uint32 = 1, container_id: uint32 = 2, length: uint32 = 3 }
    UserNamespace { mode: enum NamespaceMode = 1, uids: [IdMapping] = 2, gids: [IdMapping] = 3 }
    NamespaceOption {
        network: enum NamespaceMode = 1,
        pid: enum NamespaceMode = 2,
        ipc: enum NamespaceMode = 3,
        target_id: string = 4,
        userns_options: ?UserNamespace = 5,
    }
    LinuxSandboxSecurityContext {
        namespace_options: ?NamespaceOption = 1,
        selinux_options: ?SeLinuxOption = 2,
        run_as_user: ?Int64Value = 3,
        run_as_group: ?Int64Value = 8,
        readonly_rootfs: bool = 4,
        supplemental_groups: [int64] = 5,
        supplemental_groups_policy: enum SupplementalGroupsPolicy = 11,
        privileged: bool = 6,
        seccomp: ?SecurityProfile = 9,
        apparmor: ?SecurityProfile = 10,
        seccomp_profile_path: string = 7,
    }
    SecurityProfile { profile_type: enum ProfileType = 1, localhost_ref: string = 2 }
    LinuxPodSandboxConfig {
        cgroup_parent: string = 1,
        security_context: ?LinuxSandboxSecurityContext = 2,
        sysctls: map = 3,
        overhead: ?LinuxContainerResources = 4,
        resources: ?LinuxContainerResources = 5,
    }
    PodSandboxMetadata { name: string = 1, uid: string = 2, namespace: string = 3, attempt: uint32 = 4 }
    PodSandboxConfig {
        metadata: ?PodSandboxMetadata = 1,
        hostname: string = 2,
        log_directory: string = 3,
        dns_config: ?DnsConfig = 4,
        port_mappings: [PortMapping] = 5,
        labels: map = 6,
        annotations: map = 7,
        linux: ?LinuxPodSandboxConfig = 8,
    }
    RunPodSandboxRequest { config: ?PodSandboxConfig = 1, runtime_handler: string = 2 }
    RunPodSandboxResponse { pod_sandbox_id: string = 1 }
    StopPodSandboxRequest { pod_sandbox_id: string = 1 }
    StopPodSandboxResponse {}
    RemovePodSandboxRequest { pod_sandbox_id: string = 1 }
    RemovePodSandboxResponse {}
    PodSandboxStatusRequest { pod_sandbox_id: string = 1, verbose: bool = 2 }
    PodIp { ip: string = 1 }
    PodSandboxNetworkStatus { ip: string = 1, additional_ips: [PodIp] = 2 }
    Namespace { options: ?NamespaceOption = 2 }
    LinuxPodSandboxStatus { namespaces: ?Namespace = 1 }
    PodSandboxStatus {
        id: string = 1,
        metadata: ?PodSandboxMetadata = 2,
        state: enum PodSandboxState = 3,
        created_at: int64 = 4,
        network: ?PodSandboxNetworkStatus = 5,
        linux: ?LinuxPodSandboxStatus = 6,
        labels: map = 7,
        annotations: map = 8,
        runtime_handler: string = 9,
    }
    PodSandboxStatusResponse {
        status: ?PodSandboxStatus = 1,
        info: map = 2,
        containers_statuses: [ContainerStatus] = 3,
        timestamp: int64 = 4,
    }
    PodSandboxStateValue { state: enum PodSandboxState = 1 }
    PodSandboxFilter { id: string = 1, state: ?PodSandboxStateValue = 2, label_selector: map = 3 }
    ListPodSandboxRequest { filter: ?PodSandboxFilter = 1 }
    PodSandbox {
        id: string = 1,
        metadata: ?PodSandboxMetadata = 2,
        state: enum PodSandboxState = 3,
        created_at: int64 = 4,
        labels: map = 5,
        annotations: map = 6,
        runtime_handler: string = 7,
    }
    ListPodSandboxResponse { items: [PodSandbox] = 1 }
    StreamPodSandboxesRequest { filter: ?PodSandboxFilter = 1 }
    StreamPodSandboxesResponse { pod_sandboxes: [PodSandbox] = 1 }
    HugepageLimit { page_size: string = 1, limit: uint64 = 2 }
    PortForwardRequest { pod_sandbox_id: string = 1, port: [int32] = 2 }
    PortForwardResponse { url: string = 1 }
    UpdatePodSandboxResourcesRequest {
        pod_sandbox_id: string = 1,
        overhead: ?LinuxContainerResources = 2,
        resources: ?LinuxContainerResources = 3,
    }
    UpdatePodSandboxResourcesResponse {}
}
