//! The node agent: registers its node, runs the pods bound to it over CRI, and reports what became of them.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use client::{Informer, Recorder};
use kube::{Api, runtime::watcher};
use runtime::cri::Cri;
use sys::cgroup::Cgroups;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

mod access;
mod agent;
mod backoff;
mod conditions;
mod containers;
mod cri_log;
mod env;
mod handlers;
mod hooks;
mod hosts;
mod images;
mod logs;
mod machine;
mod messages;
mod metrics;
mod node;
mod objects;
mod plan;
mod pods;
mod probes;
mod quantity;
mod resources;
mod sandbox;
mod security;
mod server;
mod status;
mod status_writer;
mod streams;
mod terminate;
mod truth;
mod unsupported;
mod usage;
mod volumes;
mod worker;

/// Where the kernel shows control groups.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

/// Everything a kubelet needs to know; validated by the caller.
pub struct Config {
    /// The node's name.
    pub node_name: String,
    /// The address under which the node is reached.
    pub node_ip: IpAddr,
    /// The range of the node's pod addresses, for `spec.podCIDR`.
    pub pod_cidr: String,
    /// The CRI runtime's socket, `unix:///…`.
    pub runtime_endpoint: String,
    /// Pod directories: `pods/<uid>/volumes/…`.
    pub root_dir: PathBuf,
    /// Container logs: `<namespace>_<pod>_<uid>/<container>/<n>.log`.
    pub pod_logs_dir: PathBuf,
    /// The control group under which those of pods are made, for example `/ferry/kubepods`.
    pub cgroup_root: String,
    /// Accepts the API server's connections for logs and exec.
    pub listener: TcpListener,
    /// Its certificate, and the CA of certificates that clients may show; others show a token.
    pub tls: Arc<rustls::ServerConfig>,
}

/// Why a kubelet could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The container runtime does not answer.
    #[error("the container runtime at {endpoint} does not answer: {message}")]
    Runtime {
        /// The socket.
        endpoint: String,
        /// What it said.
        message: String,
    },
    /// A directory cannot be used.
    #[error("{}: {source}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The listener has no address.
    #[error("the kubelet's listener: {0}")]
    Listener(std::io::Error),
}

/// Runs until `shutdown`. Containers keep running afterwards; the next start takes them over.
pub async fn run(config: Config, client: kube::Client, shutdown: CancellationToken) -> Result<(), Error> {
    for path in [&config.root_dir, &config.pod_logs_dir] {
        std::fs::create_dir_all(path).map_err(|source| Error::Directory { path: path.clone(), source })?;
    }
    let port = config.listener.local_addr().map_err(Error::Listener)?.port();
    let (cri, version) = connect(&config.runtime_endpoint).await?;
    let runtime_version = format!("{}://{}", version.runtime_name, version.runtime_version);
    let machine = machine::Machine::read(&config.root_dir, runtime_version);
    let registration = node::Registration {
        name: config.node_name.clone(),
        ip: config.node_ip,
        pod_cidr: config.pod_cidr.clone(),
        port,
        machine: machine.clone(),
        client: client.clone(),
        cri: cri.clone(),
    };
    let access = Arc::new(access::Access::new(client.clone(), &config.node_name));
    let own = watcher::Config::default().fields(&format!("spec.nodeName={}", config.node_name));
    let agent = Arc::new(agent::Agent {
        recorder: Recorder::new(client.clone(), "kubelet", Some(&config.node_name)),
        pods: Informer::start(Api::all(client.clone()), own, shutdown.clone()),
        services: Informer::start(Api::all(client.clone()), watcher::Config::default(), shutdown.clone()),
        changes: tokio::sync::broadcast::channel(256).0,
        node_ip: config.node_ip,
        root_dir: config.root_dir,
        pod_logs_dir: config.pod_logs_dir,
        cgroups: cgroups(&config.cgroup_root),
        cgroup_root: config.cgroup_root,
        capacity: [machine.cpus * 1000, machine.memory],
        runtime_name: version.runtime_name,
        client,
        cri,
    });
    tokio::join!(
        registration.run(shutdown.clone()),
        server::serve(agent.clone(), access, config.listener, config.tls, shutdown.clone()),
        pods::run(agent, shutdown),
    );
    Ok(())
}

/// The runtime and what it calls itself.
async fn connect(endpoint: &str) -> Result<(Cri, runtime::cri::types::VersionResponse), Error> {
    let failed = |error: runtime::cri::Error| Error::Runtime { endpoint: endpoint.into(), message: error.message() };
    let cri = Cri::lazy(endpoint).map_err(failed)?;
    let version = cri.version().await.map_err(failed)?;
    Ok((cri, version))
}

/// Makes the control groups of the QoS classes. Without groups of its own the kubelet leaves limits to the runtime.
fn cgroups(root: &str) -> Option<Cgroups> {
    let make = || {
        let cgroups = Cgroups::detect(Path::new(CGROUP_MOUNT))?;
        for class in ["burstable", "besteffort"] {
            cgroups.create(&format!("{}/{class}", root.trim_end_matches('/')))?;
        }
        // Pods that asked for nothing get what nobody else wants.
        let least = sys::cgroup::Limits { cpu_shares: Some(2), ..Default::default() };
        cgroups.set(&format!("{}/besteffort", root.trim_end_matches('/')), &least)?;
        Ok(cgroups)
    };
    make()
        .inspect_err(|error: &sys::cgroup::Error| tracing::warn!(%error, "pods get no control groups of their own"))
        .ok()
}
