//! The CRD finalizer: deletes all instances of a terminating CRD and waits until they are gone.

use std::time::Duration;

use api::{schema::ResourceRef, status::Status};
use apiserver_core::{
    body::RequestBody, document, loopback, loopback::FIELD_MANAGER, query::Query, request::ResourceRequest,
    storage::ObjectStorage,
};
use store::WatchCache;
use tokio::time;

use super::{
    CustomResourceDefinitions,
    crd_index::{CRD_FINALIZER, CrdSummary},
    crd_status::update_crd_status,
    set_condition,
};

/// Timeout for deleting all instances, after which the `Terminating` condition reports the failure.
const DELETION_TIMEOUT: Duration = Duration::from_secs(60);

/// Deletes all instances, then removes the finalizer from the CRD.
pub async fn finalize_crd(
    storage: &dyn ObjectStorage,
    crds: &CustomResourceDefinitions,
    summary: &CrdSummary,
) -> Result<(), Status> {
    set_terminating(storage, summary, ["True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"])
        .await?;
    let outcome = if summary.established {
        if let Err((reason, message)) = delete_instances(storage, crds, summary).await {
            set_terminating(storage, summary, ["True", reason, &message]).await?;
            return Err(Status::internal_error(message));
        }
        ["False", "InstanceDeletionCompleted", "removed all instances"]
    } else {
        ["False", "NeverEstablished", "resource was never established"]
    };
    update_crd_status(storage, summary, |crd| {
        let [status, reason, message] = outcome;
        set_condition(crd, ["Terminating", status, reason, message]);
        let metadata = api::meta::metadata_mut(crd);
        if let Some(list) = metadata.get_mut("finalizers").and_then(api::Value::as_array_mut) {
            list.retain(|finalizer| finalizer != CRD_FINALIZER);
        }
        if metadata.get("finalizers").is_some_and(|list| list.as_array().is_some_and(Vec::is_empty)) {
            metadata.remove("finalizers");
        }
    })
    .await
}

async fn set_terminating(
    storage: &dyn ObjectStorage,
    summary: &CrdSummary,
    condition: [&str; 3],
) -> Result<(), Status> {
    let [status, reason, message] = condition;
    update_crd_status(storage, summary, |crd| set_condition(crd, ["Terminating", status, reason, message])).await
}

/// Deletes all instances and waits until they are gone. The error is the reason and message of the `Terminating`
/// condition.
async fn delete_instances(
    storage: &dyn ObjectStorage,
    crds: &CustomResourceDefinitions,
    summary: &CrdSummary,
) -> Result<(), (&'static str, String)> {
    let served = crds.served_resources();
    let current = served.crd(&summary.name).filter(|current| current.uid == summary.uid);
    let Some(crd) = current else { return Ok(()) };
    // In-flight creates must finish before instances are deleted.
    if let Some(gate) = crds.index.read(|served| served.create_gate(crd)) {
        gate.close();
        gate.wait_until_drained().await;
    }
    let resource = ResourceRef::Custom(crd.build_resource(crd.storage_version));
    let failed =
        |status: Status| ("InstanceDeletionFailed", format!("could not issue all deletes: {}", status.message));
    let target = ResourceRequest {
        verb: "deletecollection",
        query: Query::default(),
        ..loopback::loopback_list_request(resource.clone())
    };
    let input = RequestBody { content_type: String::new(), user_agent: FIELD_MANAGER.into(), body: Default::default() };
    storage.write_object(&target, &input).await.map_err(failed)?;
    let gone =
        time::timeout(DELETION_TIMEOUT, wait_until_empty(&crds.cache, &document::storage_key(&resource, "", ""))).await;
    match gone {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(("InstanceDeletionFailed", format!("could not list instances: {error}"))),
        Err(_) => {
            let message = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
            Err(("InstanceDeletionCheck", message.to_owned()))
        }
    }
}

async fn wait_until_empty(cache: &WatchCache, prefix: &str) -> Result<(), store::StoreError> {
    cache.wait_until_synced().await?;
    loop {
        let snapshot = cache.cached_snapshot(prefix);
        if snapshot.items_after(None).next().is_none() {
            return Ok(());
        }
        let mut watcher = cache.watch_prefix(prefix, snapshot.revision)?;
        if watcher.take_changes(1)?.is_empty() {
            watcher.wait_for_change().await;
        }
    }
}
