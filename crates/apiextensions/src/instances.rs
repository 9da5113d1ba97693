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
    crd_index::Summary,
    crd_status_controller::{FINALIZER, write},
    set_condition,
};

/// Timeout for deleting all instances, after which the `Terminating` condition reports the failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deletes all instances, then removes the finalizer from the CRD.
pub async fn delete(
    storage: &dyn ObjectStorage,
    definitions: &CustomResourceDefinitions,
    summary: &Summary,
) -> Result<(), Status> {
    terminating(storage, summary, ["True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"])
        .await?;
    let outcome = if summary.established {
        if let Err((reason, message)) = emptied(storage, definitions, summary).await {
            terminating(storage, summary, ["True", reason, &message]).await?;
            return Err(Status::internal_error(message));
        }
        ["False", "InstanceDeletionCompleted", "removed all instances"]
    } else {
        ["False", "NeverEstablished", "resource was never established"]
    };
    write(storage, summary, |definition| {
        let [status, reason, message] = outcome;
        set_condition(definition, ["Terminating", status, reason, message]);
        let metadata = api::meta::metadata_mut(definition);
        if let Some(list) = metadata.get_mut("finalizers").and_then(api::Value::as_array_mut) {
            list.retain(|finalizer| finalizer != FINALIZER);
        }
        if metadata.get("finalizers").is_some_and(|list| list.as_array().is_some_and(Vec::is_empty)) {
            metadata.remove("finalizers");
        }
    })
    .await
}

async fn terminating(storage: &dyn ObjectStorage, summary: &Summary, words: [&str; 3]) -> Result<(), Status> {
    let [status, reason, message] = words;
    write(storage, summary, |definition| set_condition(definition, ["Terminating", status, reason, message])).await
}

/// Deletes all instances and waits until they are gone. The error is the reason and message of the `Terminating`
/// condition.
async fn emptied(
    storage: &dyn ObjectStorage,
    definitions: &CustomResourceDefinitions,
    summary: &Summary,
) -> Result<(), (&'static str, String)> {
    let rows = definitions.rows();
    let known = rows.definition(&summary.name).filter(|known| known.uid == summary.uid);
    let Some(definition) = known else { return Ok(()) };
    // In-flight creates must finish before instances are deleted.
    if let Some(gate) = definitions.live.read(|served| served.gate(definition)) {
        gate.close();
        gate.drained().await;
    }
    let row = ResourceRef::Custom(definition.row(definition.stored));
    let failed =
        |status: Status| ("InstanceDeletionFailed", format!("could not issue all deletes: {}", status.message));
    let target = ResourceRequest {
        verb: "deletecollection",
        query: Query::default(),
        ..loopback::loopback_list_request(row.clone())
    };
    let input = RequestBody { content_type: String::new(), user_agent: FIELD_MANAGER.into(), body: Default::default() };
    storage.write_object(&target, &input).await.map_err(failed)?;
    let gone = time::timeout(PATIENCE, emptiness(&definitions.cache, &document::storage_key(&row, "", ""))).await;
    match gone {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(("InstanceDeletionFailed", format!("could not list instances: {error}"))),
        Err(_) => {
            let message = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
            Err(("InstanceDeletionCheck", message.to_owned()))
        }
    }
}

async fn emptiness(cache: &WatchCache, prefix: &str) -> Result<(), store::StoreError> {
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
