//! The controllers of kube-controller-manager.
//!
//! Every controller is level-triggered: `sync` reads the caches and the server, never the event that queued its key, so
//! a controller that stopped at any moment resumes from the state of the cluster.

mod cluster_role_aggregation;
mod controller_ref;
mod deployment;
mod discovery;
mod garbage_collector;
mod int_or_percent;
mod namespace;
mod namespaced_default;
mod node_lifecycle;
mod object_key;
mod pod_availability;
mod pod_gc;
mod replicaset;
mod resource_quota;
mod root_ca_publisher;
mod service_account;
mod storage_protection;
mod validating_admission_policy_status;

use std::sync::Arc;

use client::SharedInformerFactory;
use futures::{FutureExt, future::BoxFuture};
use tokio_util::sync::CancellationToken;

use storage_protection::ProtectedResource;

/// Cluster facts that controllers need.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The cluster's CA certificate (PEM), published as `kube-root-ca.crt` in every namespace.
    pub root_ca: String,
}

/// Dependencies of a controller.
#[derive(Clone)]
pub(crate) struct ControllerContext {
    pub(crate) client: kube::Client,
    pub(crate) informers: SharedInformerFactory,
    pub(crate) options: Arc<ControllerOptions>,
    pub(crate) shutdown: CancellationToken,
}

type StartFn = fn(ControllerContext) -> BoxFuture<'static, ()>;

/// A controller of the table [`CONTROLLERS`].
struct ControllerDescriptor {
    /// Upstream's controller name.
    name: &'static str,
    /// The service account in `kube-system` that it acts as.
    service_account: &'static str,
    start: StartFn,
}

const fn descriptor(name: &'static str, account: &'static str, start: StartFn) -> ControllerDescriptor {
    ControllerDescriptor { name, service_account: account, start }
}

/// All controllers.
const CONTROLLERS: &[ControllerDescriptor] = &[
    descriptor("deployment-controller", "deployment-controller", |context| deployment::run(context).boxed()),
    descriptor("replicaset-controller", "replicaset-controller", |context| replicaset::run(context).boxed()),
    descriptor("namespace-controller", "namespace-controller", |context| namespace::run(context).boxed()),
    descriptor("garbage-collector-controller", "generic-garbage-collector", |context| {
        garbage_collector::run(context).boxed()
    }),
    descriptor("serviceaccount-controller", "service-account-controller", |context| {
        service_account::run(context).boxed()
    }),
    descriptor("root-ca-certificate-publisher-controller", "root-ca-cert-publisher", |context| {
        root_ca_publisher::run(context).boxed()
    }),
    descriptor("node-lifecycle-controller", "node-controller", |context| node_lifecycle::run(context).boxed()),
    descriptor("persistentvolumeclaim-protection-controller", "pvc-protection-controller", |context| {
        storage_protection::run(context, ProtectedResource::Claims).boxed()
    }),
    descriptor("persistentvolume-protection-controller", "pv-protection-controller", |context| {
        storage_protection::run(context, ProtectedResource::Volumes).boxed()
    }),
    descriptor(
        "volumeattributesclass-protection-controller",
        "volumeattributesclass-protection-controller",
        |context| storage_protection::run(context, ProtectedResource::Classes).boxed(),
    ),
    descriptor("resourcequota-controller", "resourcequota-controller", |context| resource_quota::run(context).boxed()),
    descriptor("pod-garbage-collector-controller", "pod-garbage-collector", |context| pod_gc::run(context).boxed()),
    descriptor("clusterrole-aggregation-controller", "clusterrole-aggregation-controller", |context| {
        cluster_role_aggregation::run(context).boxed()
    }),
    descriptor(
        "validatingadmissionpolicy-status-controller",
        "validatingadmissionpolicy-status-controller",
        |context| validating_admission_policy_status::run(context).boxed(),
    ),
];

/// Runs every controller until `shutdown`. `client_of` returns the client of a service account in `kube-system`.
pub async fn run_controllers(
    client_of: impl Fn(&'static str) -> kube::Client,
    informers: SharedInformerFactory,
    options: ControllerOptions,
    shutdown: CancellationToken,
) {
    let options = Arc::new(options);
    let loops: Vec<_> = CONTROLLERS
        .iter()
        .map(|ControllerDescriptor { name, service_account: account, start }| {
            tracing::debug!(name, account, "controller manager: starting controller");
            let (informers, options, shutdown) = (informers.clone(), options.clone(), shutdown.clone());
            tokio::spawn(start(ControllerContext { client: client_of(account), informers, options, shutdown }))
        })
        .collect();
    for (ended, ControllerDescriptor { name, .. }) in
        futures::future::join_all(loops).await.into_iter().zip(CONTROLLERS)
    {
        if let Err(error) = ended {
            tracing::error!(name, %error, "controller manager: controller ended unexpectedly");
        }
    }
}
