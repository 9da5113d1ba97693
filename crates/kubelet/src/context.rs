//! State shared by all parts of the kubelet.

use std::{
    collections::HashMap,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{EventRecorder, SharedInformer};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Service};
use runtime::cri::{
    CriClient,
    types::{RuntimeHandlerFeatures, UserNamespace},
};
use sys::cgroup::CgroupManager;
use tokio::sync::mpsc;

pub use crate::pod_metadata::{
    container_reference, format_pod, pod_name, pod_namespace, pod_reference, pod_uid, time_from_nanos,
};
use crate::{
    admission::PodAdmission,
    blocking::run_blocking,
    config_objects::ObjectCaches,
    credential_providers::CredentialProviders,
    eviction_state::EvictionState,
    pod_dns::ClusterDns,
    pod_manager::PodManager,
    probe_metrics::ProbeCounts,
    resources::NodeResources,
    runtime_status::PodRuntimeStatus,
    settings::KubeletSettings,
    user_namespaces::{UserNamespaceError, UserNamespaceManager},
};

/// Clients, informers and immutable facts about the node.
pub struct KubeletContext {
    /// Start of this kubelet.
    pub start_time: jiff::Timestamp,
    /// The node's name.
    pub node_name: String,
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
    /// All resources of the node.
    pub capacity: NodeResources,
    /// Resources that pods can use.
    pub allocatable: NodeResources,
    /// Client for objects without an informer.
    pub client: kube::Client,
    /// ConfigMaps and Secrets of the node's pods.
    pub objects: ObjectCaches,
    /// Admitted pods and what they hold.
    pub admission: Mutex<PodAdmission>,
    /// The container runtime.
    pub cri: CriClient,
    /// The runtime's name, the prefix of container ids.
    pub runtime_name: String,
    /// Recorder of pod events.
    pub recorder: EventRecorder,
    /// Pods of this node.
    pub pods: PodManager,
    /// Pods that are being evicted.
    pub evictions: EvictionState,
    /// Features of runtime handlers, by their names.
    pub handler_features: Mutex<HashMap<String, RuntimeHandlerFeatures>>,
    /// Programs that know the credentials of images.
    pub credential_providers: CredentialProviders,
    /// User namespaces of pods.
    pub user_namespaces: Arc<UserNamespaceManager>,
    /// Counts of probe results.
    pub probe_counts: ProbeCounts,
    /// Settings of the node.
    pub settings: Arc<KubeletSettings>,
    /// Uids of pods whose workers are to sync.
    pub wakes: mpsc::UnboundedSender<String>,
    /// This node's object.
    pub node: SharedInformer<Node>,
    /// All services, for container environments.
    pub services: SharedInformer<Service>,
    /// Runtime events, for log followers.
    pub changes: tokio::sync::broadcast::Sender<runtime::cri::RuntimeEvent>,
}

impl KubeletContext {
    /// Locks the admitted pods.
    pub fn lock_admission(&self) -> MutexGuard<'_, PodAdmission> {
        self.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a runtime handler can mount recursively read-only.
    pub fn supports_recursive_read_only(&self, handler: &str) -> bool {
        self.features_of(handler).recursive_read_only_mounts
    }

    /// Returns the user namespace of a pod that runs by a runtime handler.
    pub async fn user_namespace(&self, pod: &Pod, handler: &str) -> Result<UserNamespace, UserNamespaceError> {
        let (manager, pod, handler) = (self.user_namespaces.clone(), pod.clone(), handler.to_owned());
        let is_supported = self.features_of(&handler).user_namespaces;
        run_blocking(move || manager.user_namespace(&pod, &handler, is_supported)).await
    }

    fn features_of(&self, handler: &str) -> RuntimeHandlerFeatures {
        let features = self.handler_features.lock().unwrap_or_else(PoisonError::into_inner);
        features.get(handler).cloned().unwrap_or_default()
    }

    /// Makes the worker of a pod sync.
    pub fn wake_pod(&self, uid: &str) {
        // The receiver ends at shutdown only.
        let _ = self.wakes.send(uid.to_string());
    }

    /// Returns the node's object reference for events.
    pub fn node_reference(&self) -> ObjectReference {
        ObjectReference {
            kind: Some("Node".into()),
            name: Some(self.node_name.clone()),
            uid: Some(self.node_name.clone()),
            ..Default::default()
        }
    }

    /// Returns the IPs of a pod: the node's for a pod on the host's network.
    pub fn pod_ips(&self, pod: &Pod, runtime_status: &PodRuntimeStatus) -> Vec<String> {
        match pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            true => vec![self.node_ip.to_string()],
            false => runtime_status.pod_ips(),
        }
    }

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
            start_time: jiff::Timestamp::UNIX_EPOCH,
            node_name: "test".into(),
            node_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            cluster_dns: ClusterDns::default(),
            root_dir: "/nonexistent".into(),
            pod_logs_dir: "/nonexistent".into(),
            cgroup_root: "/nonexistent".into(),
            cgroups: None,
            admission: Mutex::new(PodAdmission::new(NodeResources::default(), Vec::new(), None)),
            capacity: NodeResources { cpu_millis: 1000, memory: 1 << 30, ..Default::default() },
            allocatable: NodeResources { cpu_millis: 1000, memory: 1 << 30, ..Default::default() },
            cri: CriClient::connect_lazily("unix:///nonexistent/cri.sock").unwrap(),
            runtime_name: "test".into(),
            recorder: EventRecorder::new(client.clone(), "test", None),
            pods: PodManager::new(informers.informer_for()),
            evictions: EvictionState::default(),
            probe_counts: ProbeCounts::default(),
            handler_features: Mutex::default(),
            credential_providers: CredentialProviders::default(),
            user_namespaces: Arc::new(UserNamespaceManager::new("/nonexistent".as_ref(), 110)),
            settings: Arc::default(),
            wakes: mpsc::unbounded_channel().0,
            services: informers.informer_for(),
            node: informers.informer_for(),
            changes: tokio::sync::broadcast::channel(1).0,
            objects: ObjectCaches::new(client.clone(), &tokio_util::sync::CancellationToken::new()),
            client,
        }
    }
}
