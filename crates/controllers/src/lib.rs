//! The controllers of kube-controller-manager.
//!
//! Every controller is level-triggered: `sync` reads the caches and the server, never the event that queued its key, so
//! a controller that stopped at any moment resumes from the state of the cluster.

mod attach_detach;
mod bootstrap_token;
mod certificate_signing_request;
mod cluster_role_aggregation;
mod cluster_trust_bundle_publisher;
mod conflict_retry;
mod controller;
mod controller_history;
mod controller_ref;
mod controller_rules;
mod cronjob;
mod daemonset;
mod deployment;
mod descriptors;
mod device_pools;
mod device_taint_eviction;
mod discovery;
mod disruption;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod garbage_collector;
mod hash;
mod int_or_percent;
mod ip_prefix;
mod job;
mod job_conditions;
mod label_index;
mod label_selector_text;
mod namespace;
mod namespaced_default;
mod node_ipam;
mod node_lifecycle;
mod node_readiness;
mod object_key;
mod options;
mod periodic;
mod persistent_volume;
mod pod_availability;
mod pod_certificate_request_cleaner;
mod pod_claims;
mod pod_control;
mod pod_disruption;
mod pod_gc;
mod pod_group_protection;
mod pod_node;
mod pod_ranking;
mod pod_resource_claims;
mod pod_view;
mod podautoscaler;
mod replicaset;
mod resource_claim;
mod resource_pool_status_request;
mod resource_quota;
mod root_ca_publisher;
mod scale_client;
mod selinux_warning;
mod service_account;
mod service_account_token;
mod service_cidrs;
mod service_endpoints;
mod slow_start;
mod statefulset;
mod storage_protection;
mod storage_version_gc;
mod storage_version_migrator;
mod taint_eviction;
mod ttl;
mod ttl_after_finished;
mod validating_admission_policy_status;
mod volume_expander;

use std::{sync::Arc, time::Duration};

use client::{SharedInformerFactory, panics::contain_panic};
use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use descriptors::{CONTROLLERS, ControllerDescriptor, OFF_BY_DEFAULT};
pub use options::*;

/// Delay before a controller that panicked outside of a sync is started again.
const RESTART_DELAY: Duration = Duration::from_secs(5);

/// Dependencies of a controller.
#[derive(Clone)]
pub(crate) struct ControllerContext {
    pub(crate) name: &'static str,
    pub(crate) client: kube::Client,
    pub(crate) informers: SharedInformerFactory,
    pub(crate) options: Arc<ControllerOptions>,
    pub(crate) shutdown: CancellationToken,
}

/// Returns the client of a service account in `kube-system`.
pub type ServiceAccountClients = Arc<dyn Fn(&'static str) -> kube::Client + Send + Sync>;

/// Upstream's controllers that need a cloud provider: accepted in `--controllers`, never run.
const CLOUD_CONTROLLERS: [&str; 6] = [
    "service-lb-controller",
    "service",
    "node-route-controller",
    "route",
    "cloud-node-lifecycle-controller",
    "cloud-node-lifecycle",
];

/// The first entry of `--controllers` that names no controller.
pub fn unknown_controller(entries: &[String]) -> Option<&str> {
    let is_known = |name: &str| {
        name == "*"
            || CLOUD_CONTROLLERS.contains(&name)
            || CONTROLLERS.iter().any(|descriptor| descriptor.name == name || descriptor.aliases.contains(&name))
    };
    entries.iter().map(|entry| entry.strip_prefix('-').unwrap_or(entry)).find(|name| !is_known(name))
}

/// Runs every controller until `shutdown`.
///
/// The future is boxed, so that this crate and not its caller compiles the controllers.
pub fn run_controllers(
    client_of: ServiceAccountClients,
    informers: SharedInformerFactory,
    options: ControllerOptions,
    shutdown: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(run_all(client_of, informers, options, shutdown))
}

async fn run_all(
    client_of: ServiceAccountClients,
    informers: SharedInformerFactory,
    options: ControllerOptions,
    shutdown: CancellationToken,
) {
    let options = Arc::new(options);
    let enabled = CONTROLLERS.iter().filter(|descriptor| {
        options.is_enabled(descriptor.name, descriptor.aliases, !OFF_BY_DEFAULT.contains(&descriptor.name))
    });
    let tasks = enabled.map(|descriptor| {
        let ControllerDescriptor { name, service_account, .. } = *descriptor;
        tracing::debug!(name, service_account, "controller manager: starting controller");
        let (client, options) = (client_of(service_account), options.clone());
        let (informers, shutdown) = (informers.clone(), shutdown.clone());
        tokio::spawn(keep_running(descriptor, ControllerContext { name, client, informers, options, shutdown }))
    });
    for ended in join_all(tasks).await {
        if let Err(error) = ended {
            tracing::error!(%error, "controller manager: controller ended unexpectedly");
        }
    }
}

/// Runs a controller until shutdown, restarting it after a panic outside of its syncs.
async fn keep_running(descriptor: &'static ControllerDescriptor, context: ControllerContext) {
    let run = || (descriptor.start)(context.clone());
    while contain_panic(descriptor.name, "run", run).await.is_err() {
        if context.shutdown.run_until_cancelled(tokio::time::sleep(RESTART_DELAY)).await.is_none() {
            return;
        }
    }
}
