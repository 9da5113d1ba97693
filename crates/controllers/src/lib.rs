//! The control loops of kube-controller-manager: each one a file that watches, queues keys and syncs one key at a time.
//!
//! Every loop is level-triggered: `sync` reads the caches and the server, never the event that woke it, so a loop that
//! was stopped at any moment goes on where the state of the cluster says it should.

mod availability;
mod deployment;
mod discovery;
mod garbage_collector;
mod int_or_percent;
mod key;
mod namespace;
mod node_lifecycle;
mod ownership;
mod per_namespace;
mod pod_gc;
mod replicaset;
mod resource_quota;
mod root_ca;
mod service_account;
mod storage_protection;

use std::sync::Arc;

use client::Informers;
use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

/// What the loops need to know of the cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cluster's CA certificate (PEM), published as `kube-root-ca.crt` in every namespace.
    pub root_ca: String,
}

/// What every loop is given.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: kube::Client,
    pub(crate) informers: Informers,
    pub(crate) options: Arc<Options>,
    pub(crate) shutdown: CancellationToken,
}

type Start = fn(Context) -> BoxFuture<'static, ()>;

/// Every loop, by its upstream name.
const LOOPS: &[(&str, Start)] = &[
    ("deployment-controller", |context| deployment::run(context).boxed()),
    ("replicaset-controller", |context| replicaset::run(context).boxed()),
    ("namespace-controller", |context| namespace::run(context).boxed()),
    ("garbage-collector-controller", |context| garbage_collector::run(context).boxed()),
    ("serviceaccount-controller", |context| service_account::run(context).boxed()),
    ("root-ca-certificate-publisher-controller", |context| root_ca::run(context).boxed()),
    ("node-lifecycle-controller", |context| node_lifecycle::run(context).boxed()),
    ("storage-protection-controller", |context| storage_protection::run(context).boxed()),
    ("resourcequota-controller", |context| resource_quota::run(context).boxed()),
    ("pod-garbage-collector-controller", |context| pod_gc::run(context).boxed()),
];

/// Runs every loop until `shutdown`.
pub async fn run(client: kube::Client, informers: Informers, options: Options, shutdown: CancellationToken) {
    let context = Context { client, informers, options: Arc::new(options), shutdown };
    let loops: Vec<_> = LOOPS
        .iter()
        .map(|(name, start)| {
            tracing::debug!(name, "starting");
            tokio::spawn(start(context.clone()))
        })
        .collect();
    for (ended, (name, _)) in futures::future::join_all(loops).await.into_iter().zip(LOOPS) {
        if let Err(error) = ended {
            tracing::error!(name, %error, "ended unexpectedly");
        }
    }
}
