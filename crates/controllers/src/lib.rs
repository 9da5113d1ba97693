//! The control loops of kube-controller-manager: each one a file that watches, queues keys and syncs one key at a time.
//!
//! Every loop is level-triggered: `sync` reads the caches and the server, never the event that woke it, so a loop that
//! was stopped at any moment goes on where the state of the cluster says it should.

mod availability;
mod cluster_role_aggregation;
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
mod policy_status;
mod replicaset;
mod resource_quota;
mod root_ca;
mod service_account;
mod storage_protection;

use std::sync::Arc;

use client::Informers;
use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use storage_protection::Protected;

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

/// A loop.
struct Loop {
    /// Its upstream name.
    name: &'static str,
    /// The service account in `kube-system` that it acts as, which has the rights that it needs and no others.
    account: &'static str,
    start: Start,
}

const fn row(name: &'static str, account: &'static str, start: Start) -> Loop {
    Loop { name, account, start }
}

/// Every loop.
const LOOPS: &[Loop] = &[
    row("deployment-controller", "deployment-controller", |context| deployment::run(context).boxed()),
    row("replicaset-controller", "replicaset-controller", |context| replicaset::run(context).boxed()),
    row("namespace-controller", "namespace-controller", |context| namespace::run(context).boxed()),
    row("garbage-collector-controller", "generic-garbage-collector", |context| garbage_collector::run(context).boxed()),
    row("serviceaccount-controller", "service-account-controller", |context| service_account::run(context).boxed()),
    row("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", |context| root_ca::run(context).boxed()),
    row("node-lifecycle-controller", "node-controller", |context| node_lifecycle::run(context).boxed()),
    row("persistentvolumeclaim-protection-controller", "pvc-protection-controller", |context| {
        storage_protection::run(context, Protected::Claims).boxed()
    }),
    row("persistentvolume-protection-controller", "pv-protection-controller", |context| {
        storage_protection::run(context, Protected::Volumes).boxed()
    }),
    row("volumeattributesclass-protection-controller", "volumeattributesclass-protection-controller", |context| {
        storage_protection::run(context, Protected::Classes).boxed()
    }),
    row("resourcequota-controller", "resourcequota-controller", |context| resource_quota::run(context).boxed()),
    row("pod-garbage-collector-controller", "pod-garbage-collector", |context| pod_gc::run(context).boxed()),
    row("clusterrole-aggregation-controller", "clusterrole-aggregation-controller", |context| {
        cluster_role_aggregation::run(context).boxed()
    }),
    row("validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller", |context| {
        policy_status::run(context).boxed()
    }),
];

/// Runs every loop until `shutdown`. `client_of` gives the client of a service account in `kube-system`.
pub async fn run(
    client_of: impl Fn(&'static str) -> kube::Client,
    informers: Informers,
    options: Options,
    shutdown: CancellationToken,
) {
    let options = Arc::new(options);
    let loops: Vec<_> = LOOPS
        .iter()
        .map(|Loop { name, account, start }| {
            tracing::debug!(name, account, "starting");
            let (informers, options, shutdown) = (informers.clone(), options.clone(), shutdown.clone());
            tokio::spawn(start(Context { client: client_of(account), informers, options, shutdown }))
        })
        .collect();
    for (ended, Loop { name, .. }) in futures::future::join_all(loops).await.into_iter().zip(LOOPS) {
        if let Err(error) = ended {
            tracing::error!(name, %error, "ended unexpectedly");
        }
    }
}
