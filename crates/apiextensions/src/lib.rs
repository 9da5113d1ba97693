//! Custom resources: rows that are added to the table at run time, from the definitions that are stored.
//!
//! [`CustomResourceDefinitions`] is a view of them in step with the watch cache: who asks for a path that no built-in row is for looks there.
//! [`crd_status_controller`] sets the conditions of definitions, and deletes instances before their definition goes.

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
mod tls_config_cache;
mod validate;

use std::{sync::Arc, time::Duration};

use api::{
    Value, meta,
    schema::{Resource, ResourceRef},
    status::Status,
};
use apiserver_core::{
    cache_index::CacheIndex, document, loopback, services::ServiceResolver, storage::CustomResources,
};
pub use deferred_converter::DeferredConverter;
pub use definition::{Conversion, Definition, Scale, Version, check, version_order};
pub use gate::Entered;
pub use pages::Pages;
pub use rows::Rows;
use store::{Revision, WatchCache};
use tokio_util::sync::CancellationToken;

use self::{
    crd_index::{CrdIndex, Summary},
    tls_config_cache::TlsConfigCache,
};

/// How long the creation of a definition waits for its conditions.
const MOMENT: Duration = Duration::from_secs(1);

/// The definitions that are there, and the rows of those that are served.
pub struct CustomResourceDefinitions {
    live: CacheIndex<CrdIndex>,
    cache: Arc<WatchCache>,
    prefix: String,
    trusts: TlsConfigCache,
    services: Arc<ServiceResolver>,
}

impl CustomResourceDefinitions {
    /// The definitions of a store.
    pub fn new(cache: &Arc<WatchCache>, services: &Arc<ServiceResolver>) -> Result<Self, store::StoreError> {
        let resource = definitions().map_err(|status| store::StoreError::Unusable(status.message))?;
        let live = CacheIndex::new(cache, &[resource], CrdIndex::default())?;
        let (prefix, trusts) = (document::storage_key(resource, "", ""), TlsConfigCache::default());
        Ok(Self { live, cache: cache.clone(), prefix, trusts, services: services.clone() })
    }

    /// The row at a path.
    pub fn row(&self, group: &str, version: &str, plural: &str) -> Option<ResourceRef> {
        self.live.read(|served| served.rows().row(group, version, plural))
    }

    /// The row whose objects are of a kind.
    pub fn row_of_kind(&self, group: &str, version: &str, kind: &str) -> Option<ResourceRef> {
        self.live.read(|served| served.rows().row_of_kind(group, version, kind))
    }

    /// All rows as they are now.
    pub fn rows(&self) -> Arc<Rows> {
        self.live.read(|served| served.rows().clone())
    }

    /// Lets an object of a row be created, for as long as the answer is kept; not while the definition is being deleted.
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

    /// Refuses a revision at which another definition of the same name may have been served: its objects are not those of a row.
    pub fn reaches(&self, resource: &Resource, requested: Revision) -> Result<(), store::StoreError> {
        let Some(version) = version_of(resource) else { return Ok(()) };
        match self.live.read(|served| served.born(&version.definition)) {
            Some(oldest) if requested < oldest => Err(store::StoreError::Compacted { requested, oldest }),
            _ => Ok(()),
        }
    }

    /// Whether the definition of a row is there no more, and another has its name.
    pub fn is_replaced(&self, resource: &Resource) -> bool {
        let replaced = |version: &Version| self.live.read(|served| served.is_replaced(&version.definition));
        version_of(resource).is_some_and(replaced)
    }

    /// Cancelled when the definition of a row changes or goes; `None` for built-in rows.
    pub fn ended(&self, resource: &Resource) -> Option<CancellationToken> {
        let version = version_of(resource)?;
        Some(self.live.read(|served| served.ended(&version.definition)))
    }

    /// Waits until every write that was acknowledged before is known.
    pub async fn freshen(&self) {
        self.live.read_fresh(|_| ()).await;
    }

    /// Waits until the names of a definition were decided about, for a moment at most.
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
                // What changed is read from the view.
                let _ = watcher.take_changes(usize::MAX);
            }
        };
        if tokio::time::timeout(MOMENT, waiting).await.is_err() {
            tracing::warn!(name, "a definition waits for its conditions");
        }
    }

    /// Whether nothing is kept of any CRD.
    pub fn is_empty(&self) -> bool {
        self.live.read(CrdIndex::is_empty)
    }

    /// What is known of a definition.
    fn summary(&self, name: &str) -> Option<Arc<Summary>> {
        self.live.read(|served| served.summary(name))
    }

    /// What is known of all definitions.
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

/// What a row was made of, if a definition made it.
pub fn version_of(resource: &Resource) -> Option<&Version> {
    Version::of(&**resource.custom_schema.as_ref()?)
}

/// The row of the definitions themselves.
pub fn definitions() -> Result<&'static Resource, Status> {
    loopback::find_resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

/// Whether a condition of a definition is true.
pub fn is_true(object: &Value, condition: &str) -> bool {
    find_condition(object, condition).is_some_and(|found| found["status"] == "True")
}

/// A condition of a definition.
pub fn find_condition<'a>(object: &'a Value, condition: &str) -> Option<&'a Value> {
    meta::list_at(object, &["status", "conditions"]).iter().find(|one| one["type"] == condition)
}

/// Sets a condition of a definition; the time changes with the status only.
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
