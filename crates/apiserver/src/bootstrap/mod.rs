//! The objects that every cluster has from its first second, as a fresh kube-apiserver has them.
//!
//! [`create`] runs at every start, before the first request: it makes what is missing and adds what a newer policy has,
//! and leaves what administrators changed. [`run`] keeps up what must be kept up while the server runs.

mod authentication;
mod endpoints;
mod flow_control;
mod identity;
pub(crate) mod local_apis;
mod rbac;
mod reconcile;
mod service;

use std::time::Duration;

use api::{Value, status::Status};
use apiserver_core::{
    loopback::{self, LoopbackClient, ObjectKey},
};
use futures::{StreamExt, TryStreamExt, stream};
pub use identity::name as identity;
use registry::Registry;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Server, Settings};

const NAMESPACES: &[&str] = &["kube-system", "kube-public", "kube-node-lease", "default"];
/// How often the first objects are looked after; nothing is written when they are there.
const PERIOD: Duration = Duration::from_secs(10);
/// How many objects of a kind are written at once.
const AT_ONCE: usize = 64;
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

/// Creates what is missing.
pub async fn create(registry: &Registry, settings: &Settings) -> Result<(), Status> {
    namespaces(registry).await?;
    let services = async {
        service::networks(registry, settings).await?;
        service::kubernetes(registry, settings).await
    };
    tokio::try_join!(
        services,
        at_once(authz::bootstrap_policy::objects()?.into_iter().map(|wanted| rbac::reconcile(registry, wanted))),
        at_once(flowcontrol::bootstrap::objects()?.into_iter().map(
            |(resource, object): (&'static api::schema::Resource, Value)| flow_control::reconcile(
                registry, resource, object
            )
        )),
        at_once(local_apis::objects()?.into_iter().map(|object| local_apis::create(registry, object))),
        priority_classes(registry),
        authentication::create(registry, settings),
    )?;
    Ok(())
}

/// Writes side by side, so that fsyncs are shared.
async fn at_once<F: Future<Output = Result<(), Status>>>(writes: impl Iterator<Item = F>) -> Result<(), Status> {
    stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
}

/// Keeps the server's endpoints and its identity up to date until `shutdown`, and brings back what nobody can do without.
pub async fn run(server: Server, shutdown: CancellationToken) {
    let kept = shutdown.run_until_cancelled(keep(&server));
    tokio::join!(endpoints::run(&server, &shutdown), identity::run(&server, &shutdown), kept);
}

async fn keep(server: &Server) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let kept = async {
            namespaces(server.registry()).await?;
            service::kubernetes(server.registry(), &server.shared.settings).await
        };
        if let Err(status) = kept.await {
            tracing::warn!(error = status.message, "cannot bring back the first namespaces and the service kubernetes");
        }
    }
}

async fn namespaces(registry: &Registry) -> Result<(), Status> {
    let resource = loopback::find_resource("", "v1", "namespaces")?;
    for name in NAMESPACES {
        let object = json!({"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
        create_missing(LoopbackClient::new(registry), ObjectKey { resource, namespace: "", name }, &object).await?;
    }
    Ok(())
}

async fn priority_classes(registry: &Registry) -> Result<(), Status> {
    let resource = loopback::find_resource("scheduling.k8s.io", "v1", "priorityclasses")?;
    for (name, value, description) in PRIORITY_CLASSES {
        let object = json!({"metadata": {"name": name}, "value": value, "description": description});
        create_missing(LoopbackClient::new(registry), ObjectKey { resource, namespace: "", name }, &object).await?;
    }
    Ok(())
}

/// Creates an object unless it is there; whether it was created.
async fn create_missing(system: LoopbackClient<'_>, place: ObjectKey<'_>, object: &Value) -> Result<bool, Status> {
    if system.read_object(place).await?.is_some() {
        return Ok(false);
    }
    match system.create_object(place, object).await {
        Ok(_) => Ok(true),
        // Another server was faster.
        Err(status) if status.reason == "AlreadyExists" => Ok(false),
        Err(status) => Err(status),
    }
}
