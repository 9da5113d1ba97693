//! Deletes the instances of a definition that is to go, and waits until they are gone.

use std::time::Duration;

use api::{schema::Row, status::Status};
use tokio::time;

use super::{
    control::{FINALIZER, write},
    set_condition,
    view::Summary,
};
use crate::{
    document,
    pipeline::Input,
    query::Query,
    registry::Registry,
    request::Target,
    system::{self, NAME},
};

/// How long instances may take to go before the definition says so.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deletes all instances, and lets the definition go.
pub async fn delete(registry: &Registry, summary: &Summary) -> Result<(), Status> {
    terminating(registry, summary, ["True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"])
        .await?;
    let outcome = if summary.established {
        if let Err((reason, message)) = emptied(registry, summary).await {
            terminating(registry, summary, ["True", reason, &message]).await?;
            return Err(Status::internal(message));
        }
        ["False", "InstanceDeletionCompleted", "removed all instances"]
    } else {
        ["False", "NeverEstablished", "resource was never established"]
    };
    write(registry, summary, |definition| {
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

async fn terminating(registry: &Registry, summary: &Summary, words: [&str; 3]) -> Result<(), Status> {
    let [status, reason, message] = words;
    write(registry, summary, |definition| set_condition(definition, ["Terminating", status, reason, message])).await
}

/// Deletes all instances and waits until they are gone; else the reason and what is told.
async fn emptied(registry: &Registry, summary: &Summary) -> Result<(), (&'static str, String)> {
    let rows = registry.custom().rows();
    let known = rows.definition(&summary.name).filter(|known| known.uid == summary.uid);
    let Some(definition) = known else { return Ok(()) };
    // Who came in before must be out before instances are counted.
    if let Some(gate) = registry.custom().live.read(|served| served.gate(definition)) {
        gate.close();
        gate.drained().await;
    }
    let row = Row::Custom(definition.row(definition.stored));
    let failed =
        |status: Status| ("InstanceDeletionFailed", format!("could not issue all deletes: {}", status.message));
    let target = Target { verb: "deletecollection", query: Query::default(), ..system::target_of(row.clone()) };
    let input = Input { content_type: String::new(), user_agent: NAME.into(), body: Default::default() };
    registry.perform(&target, &input).await.map_err(failed)?;
    let gone = time::timeout(PATIENCE, emptiness(registry, &document::key(&row, "", ""))).await;
    match gone {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(("InstanceDeletionFailed", format!("could not list instances: {error}"))),
        Err(_) => {
            let message = "could not confirm zero CustomResources remaining: timed out waiting for the condition";
            Err(("InstanceDeletionCheck", message.to_owned()))
        }
    }
}

async fn emptiness(registry: &Registry, prefix: &str) -> Result<(), store::Error> {
    let cache = registry.cache();
    cache.freshen().await?;
    loop {
        let snapshot = cache.now(prefix);
        if snapshot.after(None).next().is_none() {
            return Ok(());
        }
        let mut watcher = cache.watch(prefix, snapshot.revision)?;
        if watcher.take(1)?.is_empty() {
            watcher.changed().await;
        }
    }
}
