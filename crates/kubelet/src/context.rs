//! State shared by all parts of the kubelet, and helpers for pod metadata.

use std::{net::IpAddr, path::PathBuf};

use client::{EventRecorder, SharedInformer};
use k8s_openapi::{
    api::core::v1::{Container, ObjectReference, Pod, Service},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use runtime::cri::CriClient;
use sys::cgroup::CgroupManager;

use crate::pod_dns::ClusterDns;

/// Clients, informers and immutable facts about the node.
pub struct KubeletContext {
    /// The node's IP.
    pub node_ip: IpAddr,
    /// The cluster's DNS.
    pub cluster_dns: ClusterDns,
    /// Root of the pod directories `pods/<uid>`.
    pub root_dir: PathBuf,
    /// Root of the container logs.
    pub pod_logs_dir: PathBuf,
    /// Parent cgroup of the pod cgroups.
    pub cgroup_root: String,
    /// Cgroup access; `None` leaves limits to the runtime.
    pub cgroups: Option<CgroupManager>,
    /// CPU in millicores and memory in bytes.
    pub capacity: [i64; 2],
    /// Client for objects without an informer.
    pub client: kube::Client,
    /// The container runtime.
    pub cri: CriClient,
    /// The runtime's name, the prefix of container ids.
    pub runtime_name: String,
    /// Recorder of pod events.
    pub recorder: EventRecorder,
    /// Pods bound to this node.
    pub pods: SharedInformer<Pod>,
    /// All services, for container environments.
    pub services: SharedInformer<Service>,
    /// Runtime events, for log followers.
    pub changes: tokio::sync::broadcast::Sender<runtime::cri::RuntimeEvent>,
}

impl KubeletContext {
    /// Returns the log directory of a pod.
    pub fn pod_log_dir(&self, pod: &Pod) -> PathBuf {
        self.pod_logs_dir.join(format!("{}_{}_{}", pod_namespace(pod), pod_name(pod), pod_uid(pod)))
    }
}

#[cfg(test)]
impl KubeletContext {
    /// A context whose API server and container runtime are unreachable.
    pub fn unreachable() -> Self {
        let reject = |_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, tower::BoxError>("unreachable".into())
        };
        let client = client::transport::in_process_client(tower::service_fn(reject), "test");
        let informers = client::SharedInformerFactory::new(client.clone(), tokio_util::sync::CancellationToken::new());
        Self {
            node_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            cluster_dns: ClusterDns::default(),
            root_dir: "/nonexistent".into(),
            pod_logs_dir: "/nonexistent".into(),
            cgroup_root: "/nonexistent".into(),
            cgroups: None,
            capacity: [1000, 1 << 30],
            cri: CriClient::connect_lazily("unix:///nonexistent/cri.sock").unwrap(),
            runtime_name: "test".into(),
            recorder: EventRecorder::new(client.clone(), "test", None),
            pods: informers.informer_for(),
            services: informers.informer_for(),
            changes: tokio::sync::broadcast::channel(1).0,
            client,
        }
    }
}

/// Returns the pod's name.
pub fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the pod's namespace.
pub fn pod_namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// Returns the pod's uid.
pub fn pod_uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Formats a pod as `name_namespace(uid)`.
pub fn format_pod(pod: &Pod) -> String {
    format!("{}_{}({})", pod_name(pod), pod_namespace(pod), pod_uid(pod))
}

/// Returns the pod's object reference for events.
pub fn pod_reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// Returns a container's object reference for events.
pub fn container_reference(pod: &Pod, container: &Container) -> ObjectReference {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let list = if init.into_iter().any(|init| init.name == container.name) { "initContainers" } else { "containers" };
    ObjectReference { field_path: Some(format!("spec.{list}{{{}}}", container.name)), ..pod_reference(pod) }
}

/// Converts the runtime's nanoseconds to an API time.
pub fn time_from_nanos(nanoseconds: i64) -> Option<Time> {
    (nanoseconds > 0).then(|| Timestamp::from_nanosecond(nanoseconds.into()).ok()).flatten().map(Time)
}
