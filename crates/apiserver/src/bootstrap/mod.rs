//! Bootstrap objects that every cluster has, equal to those of a new kube-apiserver.
//!
//! [`create_objects`] runs at every start, before the first request: it makes what is missing and adds what a newer policy has,
//! and leaves what administrators changed. [`run_usage_sampler`] keeps up what must be kept up while the server runs.

pub mod authentication;
mod endpoints;
mod flow_control;
mod identity;
pub(crate) mod local_apis;
mod rbac;
mod reconcile;
mod service;

use std::time::Duration;

use api::{Value, status::Status};
use apiserver_core::loopback::{self, LoopbackClient, ObjectKey};
use futures::{StreamExt, TryStreamExt, stream};
pub use identity::server_identity as identity;
use registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Server, ServerOptions};

const NAMESPACES: &[&str] = &["kube-system", "kube-public", "kube-node-lease", "default"];
/// Time between checks of the bootstrap objects; existing ones are not written.
const RESTORE_PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 64;
const PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Creates missing bootstrap objects.
pub async fn create_objects(registry: &Registry, settings: &ServerOptions) -> Result<(), Status> {
    create_namespaces(registry).await?;
    let services = async {
        service::create_service_cidr(registry, settings).await?;
        service::reconcile_kubernetes_service(registry, settings).await
    };
    tokio::try_join!(
        services,
        write_concurrently(
            authz::bootstrap_policy::policy_objects()?
                .into_iter()
                .map(|wanted| rbac::reconcile_policy_object(registry, wanted))
        ),
        write_concurrently(flowcontrol::bootstrap::bootstrap_objects()?.into_iter().map(
            |(resource, object): (&'static api::schema::Resource, Value)| flow_control::reconcile_object(
                registry, resource, object
            )
        )),
        write_concurrently(
            local_apis::api_service_objects()?
                .into_iter()
                .map(|object| local_apis::create_api_service(registry, object))
        ),
        create_priority_classes(registry),
        authentication::reconcile_config_maps(registry, &settings.authentication),
    )?;
    Ok(())
}

/// Writes concurrently, so that fsyncs are shared.
async fn write_concurrently<F: Future<Output = Result<(), Status>>>(
    writes: impl Iterator<Item = F>,
) -> Result<(), Status> {
    stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES).try_collect().await
}

/// Keeps the server's endpoints and identity lease up to date and restores essential objects until `shutdown`.
pub async fn run_bootstrap(server: Server, shutdown: CancellationToken) {
    let kept = shutdown.run_until_cancelled(restore_periodically(&server));
    tokio::join!(
        endpoints::run_endpoint_leases(&server, &shutdown),
        identity::run_identity_lease(&server, &shutdown),
        kept
    );
}

async fn restore_periodically(server: &Server) {
    loop {
        tokio::time::sleep(RESTORE_PERIOD).await;
        let kept = async {
            create_namespaces(server.registry()).await?;
            service::reconcile_kubernetes_service(server.registry(), &server.shared.options).await
        };
        if let Err(status) = kept.await {
            tracing::warn!(
                error = status.message,
                "bootstrap: restoring the namespaces and the service kubernetes failed, retrying"
            );
        }
    }
}

async fn create_namespaces(registry: &Registry) -> Result<(), Status> {
    let resource = loopback::find_resource("", "v1", "namespaces")?;
    for name in NAMESPACES {
        let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
        create_missing(LoopbackClient::new(registry), ObjectKey { resource, namespace: "", name }, &object).await?;
    }
    Ok(())
}

async fn create_priority_classes(registry: &Registry) -> Result<(), Status> {
    let resource = loopback::find_resource("scheduling.k8s.io", "v1", "priorityclasses")?;
    for (name, value, description) in PRIORITY_CLASSES {
        let object = json!({"metadata": {"name": name}, "value": value, "description": description});
        create_missing(LoopbackClient::new(registry), ObjectKey { resource, namespace: "", name }, &object).await?;
    }
    Ok(())
}

/// Creates an object if it is missing; returns whether it was created.
async fn create_missing(system: LoopbackClient<'_>, place: ObjectKey<'_>, object: &Value) -> Result<bool, Status> {
    if system.read_object(place).await?.is_some() {
        return Ok(false);
    }
    match system.create_object(place, object).await {
        Ok(_) => Ok(true),
        // Another server was faster.
        Err(status) if status.is_already_exists() => Ok(false),
        Err(status) => Err(status),
    }
}
