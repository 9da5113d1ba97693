//! Messages about the runtime itself, its events, and values that several messages share.

use super::*;

enumerations! {
    Signal {
        RuntimeDefault = 0, Sigabrt = 1, Sigalrm = 2, Sigbus = 3, Sigchld = 4, Sigcld = 5, Sigcont = 6, Sigfpe = 7,
        Sighup = 8, Sigill = 9, Sigint = 10, Sigio = 11, Sigiot = 12, Sigkill = 13, Sigpipe = 14, Sigpoll = 15,
        Sigprof = 16, Sigpwr = 17, Sigquit = 18, Sigsegv = 19, Sigstkflt = 20, Sigstop = 21, Sigsys = 22,
        Sigterm = 23, Sigtrap = 24, Sigtstp = 25, Sigttin = 26, Sigttou = 27, Sigurg = 28, Sigusr1 = 29, Sigusr2 = 30,
        Sigvtalrm = 31, Sigwinch = 32, Sigxcpu = 33, Sigxfsz = 34, Sigrtmin = 35, Sigrtminplus1 = 36,
        Sigrtminplus2 = 37, Sigrtminplus3 = 38, Sigrtminplus4 = 39, Sigrtminplus5 = 40, Sigrtminplus6 = 41,
        Sigrtminplus7 = 42, Sigrtminplus8 = 43, Sigrtminplus9 = 44, Sigrtminplus10 = 45, Sigrtminplus11 = 46,
        Sigrtminplus12 = 47, Sigrtminplus13 = 48, Sigrtminplus14 = 49, Sigrtminplus15 = 50, Sigrtmaxminus14 = 51,
        Sigrtmaxminus13 = 52, Sigrtmaxminus12 = 53, Sigrtmaxminus11 = 54, Sigrtmaxminus10 = 55, Sigrtmaxminus9 = 56,
        Sigrtmaxminus8 = 57, Sigrtmaxminus7 = 58, Sigrtmaxminus6 = 59, Sigrtmaxminus5 = 60, Sigrtmaxminus4 = 61,
        Sigrtmaxminus3 = 62, Sigrtmaxminus2 = 63, Sigrtmaxminus1 = 64, Sigrtmax = 65,
    }
    ContainerEventType {
        ContainerCreatedEvent = 0, ContainerStartedEvent = 1, ContainerStoppedEvent = 2, ContainerDeletedEvent = 3,
    }
    CgroupDriver { Systemd = 0, Cgroupfs = 1 }
}

messages! {
    VersionRequest { version: string = 1 }
    VersionResponse {
        version: string = 1,
        runtime_name: string = 2,
        runtime_version: string = 3,
        runtime_api_version: string = 4,
    }
    Int64Value { value: int64 = 1 }
    KeyValue { key: string = 1, value: bytes = 2 }
    NetworkConfig { pod_cidr: string = 1 }
    RuntimeConfig { network_config: ?NetworkConfig = 1 }
    UpdateRuntimeConfigRequest { runtime_config: ?RuntimeConfig = 1 }
    UpdateRuntimeConfigResponse {}
    RuntimeCondition { r#type: string = 1, status: bool = 2, reason: string = 3, message: string = 4 }
    RuntimeStatus { conditions: [RuntimeCondition] = 1 }
    StatusRequest { verbose: bool = 1 }
    RuntimeHandlerFeatures { recursive_read_only_mounts: bool = 1, user_namespaces: bool = 2 }
    RuntimeHandler { name: string = 1, features: ?RuntimeHandlerFeatures = 2 }
    RuntimeFeatures { supplemental_groups_policy: bool = 1, user_namespaces_host_network: bool = 2 }
    StatusResponse {
        status: ?RuntimeStatus = 1,
        info: map = 2,
        runtime_handlers: [RuntimeHandler] = 3,
        features: ?RuntimeFeatures = 4,
    }
    UInt64Value { value: uint64 = 1 }
    GetEventsRequest {}
    ContainerEventResponse {
        container_id: string = 1,
        container_event_type: enum ContainerEventType = 2,
        created_at: int64 = 3,
        pod_sandbox_status: ?PodSandboxStatus = 4,
        containers_statuses: [ContainerStatus] = 5,
    }
    RuntimeConfigRequest {}
    RuntimeConfigResponse { linux: ?LinuxRuntimeConfiguration = 1 }
    LinuxRuntimeConfiguration { cgroup_driver: enum CgroupDriver = 1 }
}
