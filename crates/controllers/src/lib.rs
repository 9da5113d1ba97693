//! The control loops of kube-controller-manager: each one a file that watches, queues keys and syncs one key at a time.

use client::Informers;
use tokio_util::sync::CancellationToken;

/// What the loops need to know of the cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's CA certificate (PEM), published as `kube-root-ca.crt` in every namespace.
    pub root_ca: String,
}

/// Runs every loop until `shutdown`.
pub async fn run(_client: kube::Client, _informers: Informers, _options: Options, shutdown: CancellationToken) {
    shutdown.cancelled().await;
}
