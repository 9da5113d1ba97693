//! Messages about containers.

use super::*;

enumerations! {
    MountPropagation { PropagationPrivate = 0, PropagationHostToContainer = 1, PropagationBidirectional = 2 }
    SupplementalGroupsPolicy { Merge = 0, Strict = 1 }
    ContainerState { ContainerCreated = 0, ContainerRunning = 1, ContainerExited = 2, ContainerUnknown = 3 }
}

messages! {
    Mount {
        container_path: string = 1,
        host_path: string = 2,
        readonly: bool = 3,
        selinux_relabel: bool = 4,
        propagation: enum MountPropagation = 5,
        uid_mappings: [IdMapping] = 6,
        gid_mappings: [IdMapping] = 7,
        recursive_read_only: bool = 8,
        image: ?ImageSpec = 9,
        image_sub_path: string = 10,
    }
    LinuxContainerResources {
        cpu_period: int64 = 1,
        cpu_quota: int64 = 2,
        cpu_shares: int64 = 3,
        memory_limit_in_bytes: int64 = 4,
        oom_score_adj: int64 = 5,
        cpuset_cpus: string = 6,
        cpuset_mems: string = 7,
        hugepage_limits: [HugepageLimit] = 8,
        unified: map = 9,
        memory_swap_limit_in_bytes: int64 = 10,
    }
    SeLinuxOption { user: string = 1, role: string = 2, r#type: string = 3, level: string = 4 }
    Capability {
        add_capabilities: [string] = 1,
        drop_capabilities: [string] = 2,
        add_ambient_capabilities: [string] = 3,
    }
    LinuxContainerSecurityContext {
        capabilities: ?Capability = 1,
        privileged: bool = 2,
        namespace_options: ?NamespaceOption = 3,
        selinux_options: ?SeLinuxOption = 4,
        run_as_user: ?Int64Value = 5,
        run_as_group: ?Int64Value = 12,
        run_as_username: string = 6,
        readonly_rootfs: bool = 7,
        supplemental_groups: [int64] = 8,
        supplemental_groups_policy: enum SupplementalGroupsPolicy = 17,
        no_new_privs: bool = 11,
        masked_paths: [string] = 13,
        readonly_paths: [string] = 14,
        seccomp: ?SecurityProfile = 15,
        apparmor: ?SecurityProfile = 16,
        apparmor_profile: string = 9,
        seccomp_profile_path: string = 10,
    }
    LinuxContainerConfig {
        resources: ?LinuxContainerResources = 1,
        security_context: ?LinuxContainerSecurityContext = 2,
    }
    LinuxContainerUser { uid: int64 = 1, gid: int64 = 2, supplemental_groups: [int64] = 3 }
    ContainerMetadata { name: string = 1, attempt: uint32 = 2 }
    Device { container_path: string = 1, host_path: string = 2, permissions: string = 3 }
    CdiDevice { name: string = 1 }
    ContainerConfig {
        metadata: ?ContainerMetadata = 1,
        image: ?ImageSpec = 2,
        command: [string] = 3,
        args: [string] = 4,
        working_dir: string = 5,
        envs: [KeyValue] = 6,
        mounts: [Mount] = 7,
        devices: [Device] = 8,
        labels: map = 9,
        annotations: map = 10,
        log_path: string = 11,
        stdin: bool = 12,
        stdin_once: bool = 13,
        tty: bool = 14,
        linux: ?LinuxContainerConfig = 15,
        cdi_devices: [CdiDevice] = 17,
        stop_signal: enum Signal = 18,
    }
    CreateContainerRequest {
        pod_sandbox_id: string = 1,
        config: ?ContainerConfig = 2,
        sandbox_config: ?PodSandboxConfig = 3,
    }
    CreateContainerResponse { container_id: string = 1 }
    StartContainerRequest { container_id: string = 1 }
    StartContainerResponse {}
    StopContainerRequest { container_id: string = 1, timeout: int64 = 2 }
    StopContainerResponse {}
    RemoveContainerRequest { container_id: string = 1 }
    RemoveContainerResponse {}
    ContainerStateValue { state: enum ContainerState = 1 }
    ContainerFilter {
        id: string = 1,
        state: ?ContainerStateValue = 2,
        pod_sandbox_id: string = 3,
        label_selector: map = 4,
    }
    ListContainersRequest { filter: ?ContainerFilter = 1 }
    Container {
        id: string = 1,
        pod_sandbox_id: string = 2,
        metadata: ?ContainerMetadata = 3,
        image: ?ImageSpec = 4,
        image_ref: string = 5,
        state: enum ContainerState = 6,
        created_at: int64 = 7,
        labels: map = 8,
        annotations: map = 9,
        image_id: string = 10,
    }
    ListContainersResponse { containers: [Container] = 1 }
    StreamContainersRequest { filter: ?ContainerFilter = 1 }
    StreamContainersResponse { containers: [Container] = 1 }
    ContainerStatusRequest { container_id: string = 1, verbose: bool = 2 }
    ContainerStatus {
        id: string = 1,
        metadata: ?ContainerMetadata = 2,
        state: enum ContainerState = 3,
        created_at: int64 = 4,
        started_at: int64 = 5,
        finished_at: int64 = 6,
        exit_code: int32 = 7,
        image: ?ImageSpec = 8,
        image_ref: string = 9,
        reason: string = 10,
        message: string = 11,
        labels: map = 12,
        annotations: map = 13,
        mounts: [Mount] = 14,
        log_path: string = 15,
        resources: ?ContainerResources = 16,
        image_id: string = 17,
        user: ?ContainerUser = 18,
        stop_signal: enum Signal = 19,
    }
    ContainerStatusResponse { status: ?ContainerStatus = 1, info: map = 2 }
    ContainerResources { linux: ?LinuxContainerResources = 1 }
    ContainerUser { linux: ?LinuxContainerUser = 1 }
    UpdateContainerResourcesRequest {
        container_id: string = 1,
        linux: ?LinuxContainerResources = 2,
        annotations: map = 4,
    }
    UpdateContainerResourcesResponse {}
    ExecSyncRequest { container_id: string = 1, cmd: [string] = 2, timeout: int64 = 3 }
    ExecSyncResponse { stdout: bytes = 1, stderr: bytes = 2, exit_code: int32 = 3 }
    ExecRequest {
        container_id: string = 1,
        cmd: [string] = 2,
        tty: bool = 3,
        stdin: bool = 4,
        stdout: bool = 5,
        stderr: bool = 6,
    }
    ExecResponse { url: string = 1 }
    AttachRequest { container_id: string = 1, stdin: bool = 2, tty: bool = 3, stdout: bool = 4, stderr: bool = 5 }
    AttachResponse { url: string = 1 }
    ReopenContainerLogRequest { container_id: string = 1 }
    ReopenContainerLogResponse {}
    CheckpointContainerRequest { container_id: string = 1, location: string = 2, timeout: int64 = 3 }
    CheckpointContainerResponse {}
}
