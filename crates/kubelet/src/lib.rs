//! The node agent: registers its node, runs the pods bound to it over CRI, and reports what became of them.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

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
    /// Its certificate, and the CA that clients must show a certificate of.
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
}

/// Runs until `shutdown`. Containers keep running afterwards; the next start takes them over.
pub async fn run(_config: Config, _client: kube::Client, shutdown: CancellationToken) -> Result<(), Error> {
    shutdown.cancelled().await;
    Ok(())
}
