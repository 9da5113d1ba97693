//! Follows what counts, as long as a quota counts it: the metadata of one kind in one namespace each. Pods are not followed
//! here, because their informer tells when they end.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use api::amounts;
use futures::StreamExt;
use kube::{
    Api, Client,
    api::{DynamicObject, PartialObjectMeta},
    discovery::verbs,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::Value;
use tokio::task::AbortHandle;

use super::count::counted;
use crate::discovery::{self, Kind};

/// The watches under way, and the kinds that there are.
pub(super) struct Followers {
    client: Client,
    known: Mutex<Vec<Kind>>,
    /// By namespace and kind.
    running: Mutex<HashMap<(String, String), AbortHandle>>,
}

impl Followers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, known: Mutex::default(), running: Mutex::default() }
    }

    /// The kinds that a quota counts. A name that no known kind counts as is reason to look for new kinds.
    pub(super) async fn kinds(&self, quota: &Value) -> Result<Vec<Kind>, kube::Error> {
        let names: Vec<String> = amounts::read(quota["spec"].get("hard")).into_keys().collect();
        let explained =
            |kinds: &[Kind]| names.iter().all(|name| kinds.iter().any(|kind| counted(kind).counts_as(name)));
        let mut kinds = lock(&self.known).clone();
        if !explained(&kinds) {
            kinds = discovery::kinds(&self.client).await?;
            kinds.retain(|kind| kind.is_namespaced() && kind.supports(&[verbs::LIST, verbs::WATCH]));
            lock(&self.known).clone_from(&kinds);
        }
        kinds.retain(|kind| names.iter().any(|name| counted(kind).counts_as(name)));
        Ok(kinds)
    }

    /// Calls `gone` with the namespace whenever an object of a kind goes or may use less.
    pub(super) fn follow(&self, namespace: &str, kind: &Kind, gone: impl Fn(&str) + Send + 'static) {
        if kind.resource.plural == "pods" && kind.resource.group.is_empty() {
            return;
        }
        let mut running = lock(&self.running);
        running.entry((namespace.to_owned(), kind.name())).or_insert_with(|| {
            let api = Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
            tokio::spawn(watch(api, namespace.to_owned(), counted(kind).grows(), gone)).abort_handle()
        });
    }

    /// Ends what is followed in a namespace, unless it still has quotas.
    pub(super) fn retain(&self, namespace: &str, has_quotas: bool) {
        lock(&self.running).retain(|(followed, _), handle| {
            let keep = has_quotas || followed != namespace;
            if !keep {
                handle.abort();
            }
            keep
        });
    }

    /// Ends everything.
    pub(super) fn stop(&self) {
        lock(&self.running).drain().for_each(|(_, handle)| handle.abort());
    }
}

async fn watch(
    api: Api<PartialObjectMeta<DynamicObject>>,
    namespace: String,
    changes: bool,
    gone: impl Fn(&str) + Send + 'static,
) {
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            // What went while nobody watched is not told.
            Ok(watcher::Event::Delete(_) | watcher::Event::InitDone) => gone(&namespace),
            Ok(watcher::Event::Apply(_)) if changes => gone(&namespace),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watch failed, trying again"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
