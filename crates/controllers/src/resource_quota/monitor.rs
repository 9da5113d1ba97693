//! Quota monitors: metadata watches of quota-counted resources, one per resource and namespace. Pods are covered by the
//! shared informer.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use api::resource_list;
use futures::StreamExt;
use kube::{
    Api, Client,
    api::{DynamicObject, PartialObjectMeta},
    discovery::verbs,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::usage::quota_kind;
use crate::discovery::{self, DiscoveredResource};

/// Running watches and the discovered resources.
pub(super) struct QuotaMonitor {
    client: Client,
    known: Mutex<Vec<DiscoveredResource>>,
    /// By namespace and resource.
    running: Mutex<HashMap<(String, String), AbortHandle>>,
}

impl QuotaMonitor {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default(), running: Mutex::default() }
    }

    /// Returns the resources that a quota counts, rediscovering if a name in `spec.hard` matches none.
    pub(super) async fn resources_for_quota(&self, quota: &Value) -> Result<Vec<DiscoveredResource>, kube::Error> {
        let names: Vec<String> = resource_list::parse_resource_list(quota["spec"].get("hard")).into_keys().collect();
        let explained = |kinds: &[DiscoveredResource]| {
            names.iter().all(|name| kinds.iter().any(|kind| quota_kind(kind).matches_resource_name(name)))
        };
        let mut kinds = lock_ignoring_poison(&self.known).clone();
        if !explained(&kinds) {
            kinds = discovery::discover_api(&self.client).await?.resources;
            kinds.retain(|kind| kind.is_namespaced() && kind.supports_verbs(&[verbs::LIST, verbs::WATCH]));
            lock_ignoring_poison(&self.known).clone_from(&kinds);
        }
        kinds.retain(|kind| names.iter().any(|name| quota_kind(kind).matches_resource_name(name)));
        Ok(kinds)
    }

    /// Calls `on_release` with the namespace whenever an object is deleted or may use less.
    pub(super) fn start_monitor(
        &self,
        namespace: &str,
        kind: &DiscoveredResource,
        on_release: impl Fn(&str) + Send + 'static,
    ) {
        if kind.resource.plural == "pods" && kind.resource.group.is_empty() {
            return;
        }
        let mut running = lock_ignoring_poison(&self.running);
        running.entry((namespace.to_owned(), kind.group_resource())).or_insert_with(|| {
            let api = Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
            tokio::spawn(watch_resource(api, namespace.to_owned(), quota_kind(kind).is_charged_on_update(), on_release))
                .abort_handle()
        });
    }

    /// Stops the watches of a namespace without quotas.
    pub(super) fn retain_namespace(&self, namespace: &str, has_quotas: bool) {
        lock_ignoring_poison(&self.running).retain(|(followed, _), handle| {
            let keep = has_quotas || followed != namespace;
            if !keep {
                handle.abort();
            }
            keep
        });
    }

    /// Stops all watches.
    pub(super) fn stop_all(&self) {
        lock_ignoring_poison(&self.running).drain().for_each(|(_, handle)| handle.abort());
    }
}

async fn watch_resource(
    api: Api<PartialObjectMeta<DynamicObject>>,
    namespace: String,
    changes: bool,
    on_release: impl Fn(&str) + Send + 'static,
) {
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            // Deletions missed while disconnected show up only as a relist.
            Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => on_release(&namespace),
            Ok(watcher::Event::Apply(_)) if changes => on_release(&namespace),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "quota monitor: watch failed, retrying"),
        }
    }
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
