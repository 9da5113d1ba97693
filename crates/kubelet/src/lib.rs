//! The kubelet: registers its node, runs the pods bound to it over CRI, and reports their status.
//!
//! The pod workers run on a tokio runtime of their own ([`run_kubelet`]), so that a busy node and a busy API server in
//! one process do not delay each other. File, mount and cgroup work runs on its blocking threads.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use client::{EventRecorder, SharedInformer, transport::client_on_runtime};
use futures::future::BoxFuture;
use kube::{Api, runtime::watcher};
use runtime::cri::CriClient;
use sys::cgroup::CgroupManager;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use cpu_manager::{CpuManagerSettings, cpu_set::CpuSet};
pub use credential_providers::{CredentialProviderConfigError, CredentialProviderSettings, read_credential_providers};
pub use eviction_thresholds::{EvictionSettings, EvictionSignal, EvictionThreshold, ThresholdValue};
pub use pod_dns::ClusterDns;
pub use settings::{ImageGcSettings, KubeletSettings, StaticPodSettings};

use crate::{
    blocking::{run_blocking, run_on_own_runtime},
    cpu_manager::{CpuManager, CpuManagerError},
    credential_providers::CredentialProviders,
    machine_info::MachineInfo,
    pod_manager::PodManager,
    user_namespaces::UserNamespaceManager,
};

mod admission;
mod auth;
mod backoff;
mod blocking;
mod cadvisor_metrics;
mod config_objects;
mod container_calls;
mod container_mounts;
mod containers;
mod context;
mod cpu_manager;
mod cpu_reconciler;
mod credential_providers;
mod cri_log;
mod debug_pages;
mod env_file;
mod environment;
mod eviction;
mod eviction_state;
mod eviction_thresholds;
mod grace_period;
mod handlers;
mod hooks;
mod hostname;
mod hosts;
mod http_handler;
mod image_credentials;
mod image_gc;
mod images;
mod log_rotation;
mod logs;
mod machine_info;
mod metrics;
mod node_registration;
mod object_cache;
mod pod_actions;
mod pod_dns;
mod pod_manager;
mod pod_metadata;
mod pod_sandbox;
mod pod_spec;
mod pod_status;
mod pod_termination;
mod pod_worker;
mod pod_workers;
mod probe_metrics;
mod prober;
mod quantity;
mod resize;
mod resource_metrics;
mod resources;
mod runtime_status;
mod security_context;
mod server;
mod settings;
mod static_pods;
mod status_writer;
mod streams;
mod summary;
mod system_logs;
mod termination_message;
mod unsupported;
mod user_namespaces;
mod volumes;

/// Mount point of the cgroup hierarchy.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// Kubelet configuration, validated by the caller.
pub struct KubeletConfig {
    /// The node's name.
    pub node_name: String,
    /// The node's IP.
    pub node_ip: IpAddr,
    /// The cluster's DNS, for pods with `dnsPolicy: ClusterFirst`.
    pub cluster_dns: ClusterDns,
    /// The CRI endpoint, `unix:///…`.
    pub runtime_endpoint: String,
    /// Pod directories: `pods/<uid>/volumes/…`.
    pub root_dir: PathBuf,
    /// Container logs: `<namespace>_<pod>_<uid>/<container>/<n>.log`.
    pub pod_logs_dir: PathBuf,
    /// The parent cgroup of pod cgroups, for example `/ferry/kubepods`.
    pub cgroup_root: String,
    /// Listener of the kubelet API, in non-blocking mode; it is registered with the kubelet's own runtime.
    pub listener: std::net::TcpListener,
    /// Settings of the node.
    pub settings: KubeletSettings,
    /// Serving certificate and client CA of the kubelet API; clients without a certificate use a bearer token.
    pub tls: Arc<rustls::ServerConfig>,
}

/// The kubelet could not start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// The container runtime is unreachable.
    #[error("the container runtime at {endpoint} does not answer: {message}")]
    Runtime {
        /// The CRI endpoint.
        endpoint: String,
        /// The runtime's error.
        message: String,
    },
    /// A directory could not be created.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The kubelet's thread could not be started or panicked.
    #[error("the kubelet's thread: {0}")]
    Thread(std::io::Error),
    /// The CPU manager cannot start.
    #[error(transparent)]
    CpuManager(#[from] CpuManagerError),
    /// The listener has no local address.
    #[error("the kubelet's listener: {0}")]
    Listener(std::io::Error),
}

/// Runs the kubelet on a runtime of its own until `shutdown`. Containers keep running and are adopted by the next start.
///
/// The future is boxed, so that this crate and not its caller compiles the kubelet.
pub fn run_kubelet(
    config: KubeletConfig,
    client: kube::Client,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<(), KubeletError>> {
    Box::pin(async {
        // Requests are handled where the API server runs, not on the kubelet's threads.
        let client = client_on_runtime(client, tokio::runtime::Handle::current());
        run_on_own_runtime(move || run_components(config, client, shutdown)).await.map_err(KubeletError::Thread)?
    })
}

/// Runs the node registration, the kubelet API and the pod workers until `shutdown`.
async fn run_components(
    config: KubeletConfig,
    client: kube::Client,
    shutdown: CancellationToken,
) -> Result<(), KubeletError> {
    let listener = TcpListener::from_std(config.listener).map_err(KubeletError::Listener)?;
    for path in [&config.root_dir, &config.pod_logs_dir] {
        let created = tokio::fs::create_dir_all(path).await;
        created.map_err(|source| KubeletError::Directory { path: path.clone(), source })?;
    }
    let port = listener.local_addr().map_err(KubeletError::Listener)?.port();
    let (cri, version) = connect_runtime(&config.runtime_endpoint).await?;
    let runtime_version = format!("{}://{}", version.runtime_name, version.runtime_version);
    let (root_dir, cgroup_root) = (config.root_dir.clone(), config.cgroup_root.clone());
    let settings = Arc::new(config.settings);
    let limits = settings.clone();
    let users = UserNamespaceManager::new(&config.root_dir, settings.max_pods);
    let read = move || (MachineInfo::read(&root_dir, runtime_version, &limits), create_qos_cgroups(&cgroup_root));
    let (machine, cgroups) = run_blocking(read).await;
    let topology = cpu_manager::topology::CpuTopology::read(Path::new("/sys/devices/system"));
    let reserved = settings.reserved.get("cpu").copied().unwrap_or(0);
    let cpu_manager = CpuManager::start(&settings.cpu_manager, topology, reserved, &config.root_dir)?;
    let (wakes, woken) = tokio::sync::mpsc::unbounded_channel();
    let access = auth::KubeletAuth::new(client.clone(), &config.node_name);
    let own = watcher::Config::default().fields(&format!("spec.nodeName={}", config.node_name));
    let this_node = watcher::Config::default().fields(&format!("metadata.name={}", config.node_name));
    let kubelet = Arc::new(context::KubeletContext {
        node: SharedInformer::start(Api::all(client.clone()), this_node, shutdown.clone()),
        recorder: EventRecorder::new(client.clone(), "kubelet", Some(&config.node_name)),
        pods: PodManager::new(SharedInformer::start(Api::all(client.clone()), own, shutdown.clone())),
        evictions: eviction_state::EvictionState::default(),
        probe_counts: probe_metrics::ProbeCounts::default(),
        handler_features: std::sync::Mutex::default(),
        credential_providers: CredentialProviders::new(
            &settings.credential_provider_bin_dir,
            &settings.credential_providers,
        ),
        user_namespaces: Arc::new(users),
        settings: settings.clone(),
        wakes,
        services: SharedInformer::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone()),
        changes: tokio::sync::broadcast::channel(256).0,
        start_time: jiff::Timestamp::now(),
        node_name: config.node_name,
        node_ip: config.node_ip,
        cluster_dns: config.cluster_dns,
        root_dir: config.root_dir,
        pod_logs_dir: config.pod_logs_dir,
        cgroups,
        cgroup_root: config.cgroup_root,
        admission: std::sync::Mutex::new(admission::PodAdmission::new(
            machine.allocatable(),
            settings.allowed_unsafe_sysctls.clone(),
            cpu_manager,
        )),
        capacity: machine.capacity(),
        allocatable: machine.allocatable(),
        runtime_name: version.runtime_name,
        objects: config_objects::ObjectCaches::new(client.clone(), &shutdown),
        client,
        cri,
    });
    let image_dir = find_image_dir(&kubelet).await;
    let images = Arc::new(image_gc::ImageGarbageCollector::new(kubelet.clone(), image_dir.clone()));
    let evictions = eviction::EvictionManager::new(kubelet.clone(), images.clone(), image_dir);
    let registration = node_registration::NodeRegistration { kubelet: kubelet.clone(), port, machine };
    let (pod_events, static_events) = tokio::sync::mpsc::unbounded_channel();
    let static_pods = static_pods::run_static_pods(kubelet.clone(), settings.static_pods.clone(), pod_events);
    let api = server::KubeletApi { kubelet: kubelet.clone(), access, shutdown: shutdown.clone() };
    tokio::join!(
        registration.run(shutdown.clone()),
        component_server::serve_https(Arc::new(api), listener, config.tls, shutdown.clone()),
        shutdown.run_until_cancelled(log_rotation::run_log_rotation(kubelet.clone())),
        shutdown.run_until_cancelled(debug_pages::serve_health(settings.healthz_address)),
        shutdown.run_until_cancelled(images.run()),
        shutdown.run_until_cancelled(evictions.run()),
        shutdown.run_until_cancelled(cpu_reconciler::run_cpu_reconciler(kubelet.clone())),
        shutdown.run_until_cancelled(static_pods),
        pod_workers::run_pod_workers(kubelet, static_events, woken, shutdown.clone()),
    );
    Ok(())
}

/// Returns a path on the file system of images; the runtime says where it is.
async fn find_image_dir(kubelet: &context::KubeletContext) -> PathBuf {
    let info = kubelet.cri.image_fs_info().await.unwrap_or_default();
    let path = info.image_filesystems.into_iter().find_map(|usage| usage.fs_id).map(|id| PathBuf::from(id.mountpoint));
    path.filter(|path| path.is_absolute()).unwrap_or_else(|| kubelet.root_dir.clone())
}

/// Connects to the runtime and returns its version.
async fn connect_runtime(endpoint: &str) -> Result<(CriClient, runtime::cri::types::VersionResponse), KubeletError> {
    let failed =
        |error: runtime::cri::CriError| KubeletError::Runtime { endpoint: endpoint.into(), message: error.message() };
    let cri = CriClient::connect_lazily(endpoint).map_err(failed)?;
    let version = cri.fetch_version().await.map_err(failed)?;
    Ok((cri, version))
}

/// Creates the cgroups of the QoS classes; without them limits are left to the runtime.
fn create_qos_cgroups(root: &str) -> Option<CgroupManager> {
    let make = || {
        let cgroups = CgroupManager::detect(Path::new(CGROUP_MOUNT))?;
        for class in ["burstable", "besteffort"] {
            cgroups.create(&format!("{}/{class}", root.trim_end_matches('/')))?;
        }
        // BestEffort pods get the minimum CPU share.
        let least = sys::cgroup::CgroupLimits { cpu_shares: Some(2), ..Default::default() };
        cgroups.set_limits(&format!("{}/besteffort", root.trim_end_matches('/')), &least)?;
        Ok(cgroups)
    };
    make()
        .inspect_err(|error: &sys::cgroup::CgroupError| tracing::warn!(%error, "kubelet: pod cgroups unavailable, limits are left to the runtime"))
        .ok()
}
