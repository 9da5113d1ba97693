//! Pod sandboxes: volumes, cgroup and namespaces, created before the containers.

use std::{collections::HashMap, path::PathBuf};

use k8s_openapi::api::{
    core::v1::{Pod, PodSpec},
    node::v1::RuntimeClass,
};
use runtime::cri::types::{
    LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping, Protocol, UserNamespace,
};

use crate::{
    admission::normalize_sysctl_name,
    blocking::run_blocking,
    config_objects::ConfigObjects,
    context::{self, KubeletContext},
    hostname::{FqdnTooLong, PodHostname},
    pod_dns::PodDns,
    resources,
    runtime_status::labels,
    security_context, unsupported,
    user_namespaces::UserNamespaceError,
    volumes::{self, PodDir, PodVolumes, content::VolumeContent},
};

/// A pod sandbox could not be created.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A volume could not be set up.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Volume {
        /// The volume's name.
        volume: String,
        /// The volume error.
        source: volumes::VolumeError,
    },
    /// The pod uses a field that this node does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The volumes' claims could not be resolved.
    #[error(
        "Unable to attach or mount volumes: unmounted volumes=[{volume}], unattached volumes=[], failed to process volumes=[{volume}]: {source}"
    )]
    Claim {
        /// The volume's name.
        volume: String,
        /// The volume error.
        source: volumes::VolumeError,
    },
    /// A directory could not be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The pod's cgroup could not be created.
    #[error(transparent)]
    Cgroup(#[from] sys::cgroup::CgroupError),
    /// The pod's RuntimeClass could not be read.
    #[error("Failed to create pod sandbox: failed to get sandbox runtime: get RuntimeClass {name}: {source}")]
    RuntimeClass {
        /// The name of the class.
        name: String,
        /// The client error.
        source: Box<kube::Error>,
    },
    /// The pod's hostname is too long.
    #[error("Failed to create pod sandbox: {0}")]
    Hostname(#[from] FqdnTooLong),
    /// The pod cannot have a user namespace.
    #[error("Failed to create pod sandbox: {0}")]
    UserNamespace(#[from] UserNamespaceError),
    /// The runtime returned an error.
    #[error("Failed to create pod sandbox: {}", .0.message())]
    Runtime(#[from] runtime::cri::CriError),
}

impl SandboxError {
    /// Returns the event reason of the error.
    pub fn event_reason(&self) -> &'static str {
        match self {
            SandboxError::Volume { .. } | SandboxError::Claim { .. } => "FailedMount",
            SandboxError::Directory { .. } | SandboxError::Cgroup(_) => "FailedCreatePodContainer",
            SandboxError::Runtime(_)
            | SandboxError::Hostname(_)
            | SandboxError::UserNamespace(_)
            | SandboxError::RuntimeClass { .. }
            | SandboxError::Unsupported(_) => "FailedCreatePodSandBox",
        }
    }
}

/// Creates the pod's directories, volumes, cgroup and sandbox; returns the sandbox id.
pub async fn create_pod_sandbox(
    kubelet: &KubeletContext,
    pod: &Pod,
    volumes: &PodVolumes,
    attempt: u32,
) -> Result<String, SandboxError> {
    if let Some(message) = unsupported::find_unsupported_field(pod) {
        return Err(SandboxError::Unsupported(message));
    }
    create_dir(kubelet.pod_log_dir(pod)).await?;
    create_dir(PodDir::new(&kubelet.root_dir, context::pod_uid(pod)).path().into()).await?;
    prepare_volumes(kubelet, pod, volumes).await?;
    if let Some(cgroups) = kubelet.cgroups.clone() {
        let (cgroup, mut limits) = (pod_cgroup(kubelet, pod), resources::pod_cgroup_limits(pod));
        limits.pids = kubelet.settings.pod_pids_limit;
        if kubelet.lock_admission().is_pinned(context::pod_uid(pod)) {
            // CPUs of its own are limit enough; a quota would only stop the pod now and then.
            limits.cpu_quota = None;
        }
        let create = move || cgroups.create(&cgroup).and_then(|()| cgroups.set_limits(&cgroup, &limits));
        run_blocking(create).await?;
    }
    for warning in pod_dns(kubelet, pod, &pod.spec.clone().unwrap_or_default()).await.warnings {
        kubelet.recorder.record_warning(context::pod_reference(pod), "DNSConfigForming", warning);
    }
    let handler = runtime_handler(kubelet, pod).await?;
    let users = kubelet.user_namespace(pod, &handler).await?;
    Ok(kubelet.cri.run_sandbox(sandbox_config(kubelet, pod, attempt, &users).await?, &handler).await?)
}

/// Returns the handler of the pod's RuntimeClass; empty is the runtime's default.
async fn runtime_handler(kubelet: &KubeletContext, pod: &Pod) -> Result<String, SandboxError> {
    let name = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.clone()).filter(|name| !name.is_empty());
    let Some(name) = name else { return Ok(String::new()) };
    let classes: kube::Api<RuntimeClass> = kube::Api::all(kubelet.client.clone());
    let class = classes.get(&name).await;
    Ok(class.map_err(|source| SandboxError::RuntimeClass { name, source: Box::new(source) })?.handler)
}

async fn create_dir(path: PathBuf) -> Result<(), SandboxError> {
    tokio::fs::create_dir_all(&path).await.map_err(|source| SandboxError::Directory { path, source })
}

/// Sets up or refreshes the volumes.
pub async fn prepare_volumes(kubelet: &KubeletContext, pod: &Pod, volumes: &PodVolumes) -> Result<(), SandboxError> {
    let objects = ConfigObjects::new(&kubelet.objects, pod, volumes.changes.clone());
    let content = VolumeContent {
        pod,
        objects: &objects,
        client: &kubelet.client,
        allocatable: &kubelet.allocatable,
        tokens: &volumes.tokens,
    };
    let dir = PodDir::new(&kubelet.root_dir, context::pod_uid(pod));
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let failed = |source| match source {
            source @ volumes::VolumeError::Claim { .. } => SandboxError::Claim { volume: volume.name.clone(), source },
            source => SandboxError::Volume { volume: volume.name.clone(), source },
        };
        dir.prepare_volume(volume, &content, volumes).await.map_err(failed)?;
    }
    Ok(())
}

/// Returns the path of the pod's cgroup.
pub fn pod_cgroup(kubelet: &KubeletContext, pod: &Pod) -> String {
    let qos = pod.spec.as_ref().map_or(resources::QosClass::BestEffort, resources::pod_qos_class);
    resources::pod_cgroup_path(&kubelet.cgroup_root, context::pod_uid(pod), qos)
}

/// Builds the CRI sandbox config, which is also passed with each container.
pub async fn sandbox_config(
    kubelet: &KubeletContext,
    pod: &Pod,
    attempt: u32,
    users: &UserNamespace,
) -> Result<PodSandboxConfig, FqdnTooLong> {
    let spec = pod.spec.clone().unwrap_or_default();
    let hostname = PodHostname::of_pod(pod, &kubelet.cluster_dns.domain).kernel_hostname()?;
    let mut labels: HashMap<String, String> = pod.metadata.labels.clone().unwrap_or_default().into_iter().collect();
    labels.extend(pod_labels(pod));
    let sysctls = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: context::pod_name(pod).into(),
            uid: context::pod_uid(pod).into(),
            namespace: context::pod_namespace(pod).into(),
            attempt,
        }),
        hostname: if spec.host_network == Some(true) { String::new() } else { hostname },
        log_directory: kubelet.pod_log_dir(pod).display().to_string(),
        dns_config: Some(pod_dns(kubelet, pod, &spec).await.config),
        port_mappings: port_mappings(&spec),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: pod_cgroup(kubelet, pod),
            security_context: Some(security_context::sandbox_security_context(&spec, users)),
            sysctls: sysctls.map(|sysctl| (normalize_sysctl_name(&sysctl.name), sysctl.value.clone())).collect(),
            ..Default::default()
        }),
    })
}

async fn pod_dns(kubelet: &KubeletContext, pod: &Pod, spec: &PodSpec) -> PodDns {
    let resolv_conf = tokio::fs::read_to_string(&kubelet.settings.resolv_conf).await.unwrap_or_default();
    kubelet.cluster_dns.settings_of_pod(spec, context::pod_namespace(pod), &resolv_conf)
}

/// Returns the labels that identify a pod's runtime objects.
pub fn pod_labels(pod: &Pod) -> [(String, String); 3] {
    [
        (labels::POD_NAME.into(), context::pod_name(pod).into()),
        (labels::POD_NAMESPACE.into(), context::pod_namespace(pod).into()),
        (labels::POD_UID.into(), context::pod_uid(pod).into()),
    ]
}

/// Returns the host ports of a pod's containers; those of a pod on the host's network are the host's own.
fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    if spec.host_network == Some(true) {
        return Vec::new();
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            };
            Some(PortMapping {
                protocol: protocol as i32,
                container_port: port.container_port,
                host_port: port.host_port.filter(|port| *port != 0)?,
                host_ip: port.host_ip.clone().unwrap_or_default(),
            })
        })
        .collect()
}
