//! Custom resources: API resources added at run time from stored CustomResourceDefinitions.
//!
//! [`CustomResourceDefinitions`] is an index kept in step with the watch cache; request handling consults it for paths
//! that no built-in resource serves. [`crd_status_controller`] maintains the conditions of CRDs and deletes instances
//! before their CRD is removed.

mod approval;
mod columns;
mod convert;
mod correlate;
mod crd_index;
pub mod crd_status_controller;
mod default;
mod deferred_converter;
mod definition;
mod gate;
mod instances;
mod jsonpath;
mod members;
mod names;
pub mod openapi;
mod pages;
mod prune;
mod rows;
pub mod rules;
pub mod schema;
mod served_openapi;
mod services;
mod validate;

use std::{sync::Arc, time::Duration};

use api::{
    Value, meta,
    schema::{Resource, ResourceRef},
    status::Status,
};
use apiserver_core::{
    cache_index::CacheIndex, document, loopback, storage::CustomResources, webhook::WebhookClients,
};
pub use deferred_converter::DeferredConverter;
pub use definition::{Conversion, Definition, Scale, Version, check, version_order};
pub use gate::Entered;
pub use pages::Pages;
pub use rows::Rows;
use store::{Revision, WatchCache};
use tokio_util::sync::CancellationToken;

use self::crd_index::{CrdIndex, Summary};

/// Timeout of a CRD create for waiting on the `NamesAccepted` condition.
const MOMENT: Duration = Duration::from_secs(1);

/// Index of CRDs and of the resources they serve.
pub struct CustomResourceDefinitions {
    live: CacheIndex<CrdIndex>,
    cache: Arc<WatchCache>,
    prefix: String,
    webhook_clients: Arc<WebhookClients>,
}

impl CustomResourceDefinitions {
    /// Builds the index from a watch cache.
    pub fn new(cache: &Arc<WatchCache>, webhook_clients: &Arc<WebhookClients>) -> Result<Self, store::StoreError> {
        let resource = definitions().map_err(|status| store::StoreError::Unusable(status.message))?;
        let live = CacheIndex::new(cache, &[resource], CrdIndex::default())?;
        let prefix = document::storage_key(resource, "", "");
        Ok(Self { live, cache: cache.clone(), prefix, webhook_clients: webhook_clients.clone() })
    }

    /// Returns the resource with a group, version and plural name.
    pub fn row(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.live.read(|served| served.rows().row(group, version, plural))
    }

    /// Returns the resource whose objects have a kind.
    pub fn row_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        self.live.read(|served| served.rows().row_of_kind(group, version, kind))
    }

    /// Returns a snapshot of all served custom resources.
    pub fn rows(&self) -> Arc<Rows> {
        self.live.read(|served| served.rows().clone())
    }

    /// Registers a create of a custom resource for as long as the result is held; forbidden while the CRD terminates.
    pub fn enter(&self, resource: &Resource, name: &str) -> Result<Option<Entered>, Status> {
        let Some(version) = version_of(resource) else { return Ok(None) };
        let gate = self.live.read(|served| served.gate(&version.definition));
        match gate.and_then(|gate| gate.enter()) {
            Some(entered) => Ok(Some(entered)),
            None => {
                let why = "create not allowed while custom resource definition is terminating";
                Err(Status::forbidden(resource, name, why))
            }
        }
    }

    /// Rejects revisions from before the CRD was served as `Compacted`: an earlier CRD of the same name may have owned
    /// them.
    pub fn reaches(&self, resource: &Resource, requested: Revision) -> Result<(), store::StoreError> {
        let Some(version) = version_of(resource) else { return Ok(()) };
        match self.live.read(|served| served.born(&version.definition)) {
            Some(oldest) if requested < oldest => Err(store::StoreError::Compacted { requested, oldest }),
            _ => Ok(()),
        }
    }

    /// Whether the CRD of this resource has been changed or recreated.
    pub fn is_replaced(&self, resource: &Resource) -> bool {
        let replaced = |version: &Version| self.live.read(|served| served.is_replaced(&version.definition));
        version_of(resource).is_some_and(replaced)
    }

    /// Returns a token that is cancelled when the resource's CRD changes or is deleted; `None` for built-in resources.
    pub fn ended(&self, resource: &Resource) -> Option<CancellationToken> {
        let version = version_of(resource)?;
        Some(self.live.read(|served| served.ended(&version.definition)))
    }

    /// Waits until the index contains every write acknowledged before the call.
    pub async fn freshen(&self) {
        self.live.read_fresh(|_| ()).await;
    }

    /// Waits until the CRD's `NamesAccepted` condition is set, for at most `MOMENT`.
    pub async fn settled(&self, object: &Value) {
        let (name, uid) = (meta::name(object), meta::uid(object));
        let is_decided = |summary: Arc<Summary>| summary.uid == uid && summary.names.is_some();
        let decided = |served: &CrdIndex| served.summary(name).is_some_and(is_decided);
        let mut watcher = match self.cache.watch_prefix(&self.prefix, self.cache.cached_snapshot(&self.prefix).revision)
        {
            Ok(watcher) => watcher,
            Err(error) => return tracing::warn!(%error, "definitions cannot be followed"),
        };
        let waiting = async {
            while !self.live.read(decided) {
                watcher.wait_for_change().await;
                // The changes themselves are read from the index.
                let _ = watcher.take_changes(usize::MAX);
            }
        };
        if tokio::time::timeout(MOMENT, waiting).await.is_err() {
            tracing::warn!(name, "a definition waits for its conditions");
        }
    }

    /// Whether the index holds no state of any CRD.
    pub fn is_empty(&self) -> bool {
        self.live.read(CrdIndex::is_empty)
    }

    /// Returns the summary of a CRD.
    fn summary(&self, name: &str) -> Option<Arc<Summary>> {
        self.live.read(|served| served.summary(name))
    }

    /// Returns the summaries of all CRDs.
    fn summaries(&self) -> Vec<Arc<Summary>> {
        self.live.read(CrdIndex::summaries)
    }
}

impl CustomResources for CustomResourceDefinitions {
    fn find_resource(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.row(group, version, plural)
    }

    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        self.row_of_kind(group, version, kind)
    }

    fn served_versions(&self, group: &str, plural: &str) -> Vec<ResourceRef> {
        self.rows().versions(group, plural).collect()
    }
}

/// Returns the CRD version that a resource was built from; `None` for built-in resources.
pub fn version_of(resource: &Resource) -> Option<&Version> {
    Version::of(&**resource.custom_schema.as_ref()?)
}

/// Returns the `customresourcedefinitions` resource.
pub fn definitions() -> Result<&'static Resource, Status> {
    loopback::find_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// Whether a condition of a CRD has status `True`.
pub fn is_true(object: &Value, condition: &str) -> bool {
    find_condition(object, condition).is_some_and(|found| found["status"] == "True")
}

/// Returns a condition of a CRD.
pub fn find_condition<'a>(object: &'a Value, condition: &str) -> Option<&'a Value> {
    meta::list_at(object, &["status", "conditions"]).iter().find(|one| one["type"] == condition)
}

/// Sets a condition of a CRD; `lastTransitionTime` changes only when the status does.
pub fn set_condition(object: &mut Value, [kind, status, reason, message]: [&str; 4]) {
    let before = find_condition(object, kind);
    let since = before.filter(|before| before["status"] == status).map(|before| before["lastTransitionTime"].clone());
    let since =
        since.filter(|since| !since.is_null()).unwrap_or_else(|| apiserver_core::clock::now_in_seconds().into());
    let condition = serde_json::json!({
        "type": kind, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    let conditions = meta::field_mut(object, "status").entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = Value::Array(Vec::new());
    }
    let list = conditions.as_array_mut().into_iter().flatten().find(|one| one["type"] == kind);
    match list {
        Some(known) => *known = condition,
        None => drop(conditions.as_array_mut().map(|list| list.push(condition))),
    }
}
