//! Custom resources: API resources added at run time from stored CustomResourceDefinitions.
//!
//! [`CustomResourceDefinitions`] is an index kept in step with the watch cache; request handling consults it for paths
//! that no built-in resource serves. [`crd_status_controller`] maintains the conditions of CRDs and deletes instances
//! before their CRD is removed.

mod api_approval;
mod correlation;
mod crd_document_cache;
mod crd_finalizer;
mod crd_index;
mod crd_info;
mod crd_registration;
mod crd_status;
pub mod crd_status_controller;
mod create_gate;
mod defaulting;
mod deferred_converter;
mod format;
mod json_members;
mod jsonpath;
mod names_accepted;
pub mod openapi;
mod pruning;
mod schema_validation;
mod served_openapi;
mod served_resources;
pub mod structural_schema;
mod table_convertor;
pub mod validation_rules;
mod webhook_converter;

use std::{sync::Arc, time::Duration};

use api::{
    Value, meta,
    schema::{Resource, ResourceRef},
    status::Status,
};
use apiserver_core::{cache_index::CacheIndex, document, loopback, storage::CustomResources, webhook::WebhookClients};
pub use crd_document_cache::CrdDocumentCache;
pub use crd_info::{ConversionStrategy, CrdInfo, CrdVersion, ScalePaths, validate_crd_rules, version_order};
pub use create_gate::InFlightCreate;
pub use deferred_converter::DeferredConverter;
pub use served_resources::ServedResources;
use store::{Revision, WatchCache};
use tokio_util::sync::CancellationToken;

pub use self::crd_index::CRD_FINALIZER;
use self::crd_index::{CrdIndex, CrdSummary};

/// Timeout of a CRD create for waiting on the `NamesAccepted` condition.
const NAMES_ACCEPTED_TIMEOUT: Duration = Duration::from_secs(1);

/// Index of CRDs and of the resources they serve.
pub struct CustomResourceDefinitions {
    index: CacheIndex<CrdIndex>,
    cache: Arc<WatchCache>,
    prefix: String,
    webhook_clients: Arc<WebhookClients>,
}

impl CustomResourceDefinitions {
    /// Builds the index from a watch cache.
    pub fn new(cache: &Arc<WatchCache>, webhook_clients: &Arc<WebhookClients>) -> Result<Self, store::StoreError> {
        let resource = crd_resource().map_err(|status| store::StoreError::Unusable(status.message))?;
        let index = CacheIndex::new(cache, &[resource], CrdIndex::default())?;
        let prefix = document::storage_key(resource, "", "");
        Ok(Self { index, cache: cache.clone(), prefix, webhook_clients: webhook_clients.clone() })
    }

    /// Returns a snapshot of all served custom resources.
    pub fn served_resources(&self) -> Arc<ServedResources> {
        self.index.read(|served| served.served_resources().clone())
    }

    /// Registers a create of a custom resource for as long as the result is held; forbidden while the CRD terminates.
    pub fn begin_create(&self, resource: &Resource, name: &str) -> Result<Option<InFlightCreate>, Status> {
        let Some(version) = crd_version(resource) else { return Ok(None) };
        let gate = self.index.read(|served| served.create_gate(&version.crd));
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
    pub fn check_revision(&self, resource: &Resource, requested: Revision) -> Result<(), store::StoreError> {
        let Some(version) = crd_version(resource) else { return Ok(()) };
        let oldest = version.crd.served_since;
        if requested < oldest { Err(store::StoreError::Compacted { requested, oldest }) } else { Ok(()) }
    }

    /// Whether the CRD of this resource has been changed or recreated.
    pub fn is_replaced(&self, resource: &Resource) -> bool {
        let replaced = |version: &CrdVersion| self.index.read(|served| served.is_replaced(&version.crd));
        crd_version(resource).is_some_and(replaced)
    }

    /// Returns a token that is cancelled when the resource's CRD changes or is deleted; `None` for built-in resources.
    pub fn change_token(&self, resource: &Resource) -> Option<CancellationToken> {
        let version = crd_version(resource)?;
        Some(self.index.read(|served| served.change_token(&version.crd)))
    }

    /// Waits until the index contains every write acknowledged before the call.
    pub async fn wait_until_fresh(&self) {
        self.index.read_fresh(|_| ()).await;
    }

    /// Waits until the CRD's `NamesAccepted` condition is set, for at most [`NAMES_ACCEPTED_TIMEOUT`].
    pub async fn wait_until_names_accepted(&self, object: &Value) {
        let (name, uid) = (meta::name(object), meta::uid(object));
        let is_decided = |summary: Arc<CrdSummary>| summary.uid == uid && summary.names_accepted.is_some();
        let decided = |served: &CrdIndex| served.summary(name).is_some_and(is_decided);
        let mut watcher = match self.cache.watch_prefix(&self.prefix, self.cache.cached_snapshot(&self.prefix).revision)
        {
            Ok(watcher) => watcher,
            Err(error) => return tracing::warn!(%error, "CRD index: watch failed, not waiting for NamesAccepted"),
        };
        let waiting = async {
            while !self.index.read(decided) {
                watcher.wait_for_change().await;
                // The changes themselves are read from the index.
                let _ = watcher.take_changes(usize::MAX);
            }
        };
        if tokio::time::timeout(NAMES_ACCEPTED_TIMEOUT, waiting).await.is_err() {
            tracing::warn!(name, "CRD index: NamesAccepted not set in time, continuing");
        }
    }

    /// Whether the index holds no state of any CRD.
    pub fn is_empty(&self) -> bool {
        self.index.read(CrdIndex::is_empty)
    }

    /// Returns the summary of a CRD.
    fn summary(&self, name: &str) -> Option<Arc<CrdSummary>> {
        self.index.read(|served| served.summary(name))
    }

    /// Returns the summaries of all CRDs.
    fn summaries(&self) -> Vec<Arc<CrdSummary>> {
        self.index.read(CrdIndex::summaries)
    }
}

impl CustomResources for CustomResourceDefinitions {
    fn find_resource(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.index.read(|served| served.served_resources().resource(group, version, plural))
    }

    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        self.index.read(|served| served.served_resources().resource_of_kind(group, version, kind))
    }

    fn served_versions(&self, group: &str, plural: &str) -> Vec<ResourceRef> {
        self.served_resources().served_versions(group, plural).collect()
    }
}

/// Returns the CRD version that a resource was built from; `None` for built-in resources.
pub fn crd_version(resource: &Resource) -> Option<&CrdVersion> {
    CrdVersion::from_schema(&**resource.custom_schema.as_ref()?)
}

/// Returns the `customresourcedefinitions` resource.
pub fn crd_resource() -> Result<&'static Resource, Status> {
    loopback::find_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// Whether a condition of a CRD has status `True`.
pub fn is_condition_true(object: &Value, condition: &str) -> bool {
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
