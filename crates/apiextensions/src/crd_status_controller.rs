//! Maintains the `NamesAccepted`, `Established` and `Terminating` conditions of CRDs. One task per server.
//!
//! It is level-triggered: it reconciles a CRD when it changes, and CRDs with name conflicts when names may have become
//! free. Failures are retried after a delay.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use api::{Value, meta, status::Status};
use apiserver_core::{document, loopback::ObjectKey, storage::ObjectStorage};
use store::CacheWatcher;
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;

use super::{
    CustomResourceDefinitions, crd_index::Summary, instances, names, names::Taken, services::Services as ApiServices,
    set_condition,
};

/// The finalizer that keeps a CRD until all its instances are deleted.
pub const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the controller until `over` is cancelled.
pub async fn run(
    storage: Arc<dyn ObjectStorage>,
    definitions: Arc<CustomResourceDefinitions>,
    over: CancellationToken,
) {
    let Ok(resource) = super::definitions() else { return };
    let mut control = CrdStatusController {
        prefix: document::storage_key(resource, "", ""),
        storage,
        definitions,
        waiting: BTreeSet::new(),
        deleting: HashSet::new(),
        going: JoinSet::new(),
        services: ApiServices::default(),
    };
    tokio::select! {
        () = over.cancelled() => {}
        () = control.work() => {}
    }
}

struct CrdStatusController {
    storage: Arc<dyn ObjectStorage>,
    definitions: Arc<CustomResourceDefinitions>,
    prefix: String,
    /// Work queue: names of CRDs to reconcile.
    waiting: BTreeSet<String>,
    /// UIDs of CRDs whose instances are being deleted. Not names, because a CRD may be recreated at once.
    deleting: HashSet<String>,
    going: JoinSet<(Arc<Summary>, Result<(), Status>)>,
    services: ApiServices,
}

impl CrdStatusController {
    async fn work(&mut self) {
        loop {
            let begun = self.begin();
            let mut watcher = match begun {
                Ok(watcher) => watcher,
                Err(error) => {
                    tracing::error!(%error, "definitions of custom resources cannot be followed");
                    time::sleep(PAUSE).await;
                    continue;
                }
            };
            while self.round(&mut watcher).await.is_ok() {}
        }
    }

    /// Queues all CRDs and starts watching for changes.
    fn begin(&mut self) -> Result<CacheWatcher, store::StoreError> {
        let cache = &self.definitions.cache;
        let watcher = cache.watch_prefix(&self.prefix, cache.cached_snapshot(&self.prefix).revision)?;
        self.waiting = self.definitions.summaries().iter().map(|one| one.name.clone()).collect();
        Ok(watcher)
    }

    /// Reconciles the queued CRDs, then waits for a change. On `Err`, changes were lost and all CRDs must be listed
    /// again.
    async fn round(&mut self, watcher: &mut CacheWatcher) -> Result<(), store::StoreError> {
        for name in std::mem::take(&mut self.waiting) {
            if let Err(status) = self.look(&name).await {
                tracing::warn!(name, status.message, "the conditions of a definition could not be set");
                self.waiting.insert(name);
            }
        }
        let rows = self.definitions.rows();
        let registered = self.services.reconcile(&*self.storage, &rows).await;
        if let Err(status) = &registered {
            tracing::warn!(status.message, "groups of custom resources could not be registered");
        }
        let again = !self.waiting.is_empty() || registered.is_err();
        tokio::select! {
            () = watcher.wait_for_change() => {}
            Some(done) = self.going.join_next() => self.gone(done),
            () = time::sleep(PAUSE), if again => {}
        }
        for change in watcher.take_changes(usize::MAX)? {
            let Some(name) = change.key().strip_prefix(&self.prefix) else { continue };
            self.waiting.insert(name.to_owned());
            if change.item.is_none() {
                self.refused_too();
            }
        }
        Ok(())
    }

    /// Requeues CRDs with name conflicts, because names may have become free.
    fn refused_too(&mut self) {
        let refused = |one: &Arc<Summary>| (one.names == Some(false)).then(|| one.name.clone());
        self.waiting.extend(self.definitions.summaries().iter().filter_map(refused));
    }

    fn gone(&mut self, done: Result<(Arc<Summary>, Result<(), Status>), tokio::task::JoinError>) {
        let Ok((summary, result)) = done else { return };
        self.deleting.remove(&summary.uid);
        if let Err(status) = result {
            tracing::warn!(summary.name, status.message, "instances of a definition could not be deleted");
            self.waiting.insert(summary.name.clone());
        }
    }

    async fn look(&mut self, name: &str) -> Result<(), Status> {
        let Some(summary) = self.definitions.summary(name) else { return Ok(()) };
        if summary.deleting {
            if summary.finalizer && self.deleting.insert(summary.uid.clone()) {
                let (storage, definitions) = (self.storage.clone(), self.definitions.clone());
                self.going.spawn(async move {
                    let result = instances::delete(&*storage, &definitions, &summary).await;
                    if result.is_err() {
                        time::sleep(PAUSE).await;
                    }
                    (summary, result)
                });
            }
            return Ok(());
        }
        let all = self.definitions.summaries();
        let taken = Taken::of(&summary.group, all.iter().map(|one| &**one).filter(|one| one.name != name));
        let decision = names::decide(&summary.wanted, &summary.accepted, &taken);
        let settled = summary.names == Some(decision.condition.0) && same_names(&decision.accepted, &summary.accepted);
        let (accepted, reason, message) = &decision.condition;
        if settled && (summary.established || !accepted) && summary.approval.is_none() {
            return Ok(());
        }
        write(&*self.storage, &summary, |definition| {
            meta::field_mut(definition, "status").insert("acceptedNames".into(), decision.accepted.clone());
            set_condition(definition, ["NamesAccepted", if *accepted { "True" } else { "False" }, reason, message]);
            if *accepted && !super::is_true(definition, "Established") {
                let words = ["InitialNamesAccepted", "the initial names have been accepted"];
                set_condition(definition, ["Established", "True", words[0], words[1]]);
            } else if !accepted && super::find_condition(definition, "Established").is_none() {
                set_condition(definition, ["Established", "False", "NotAccepted", "not all names are accepted"]);
            }
            if let Some(approval) = &summary.approval {
                approval.tell(definition);
            }
        })
        .await?;
        if summary.names != Some(false) || !accepted {
            self.refused_too();
            self.waiting.remove(name);
        }
        Ok(())
    }
}

/// Updates the status of a CRD; does nothing if the CRD is deleted or has been recreated with another UID.
pub async fn write(
    storage: &dyn ObjectStorage,
    summary: &Summary,
    change: impl Fn(&mut Value) + Send + Sync,
) -> Result<(), Status> {
    let place = ObjectKey { resource: super::definitions()?, namespace: "", name: &summary.name };
    let mut edit = |current: &Value| {
        let mut definition = current.clone();
        if meta::uid(current) == summary.uid {
            change(&mut definition);
        }
        Ok(definition)
    };
    let written = storage.edit_status(place, &mut edit).await;
    match written {
        Err(status) if status.code == 404 => Ok(()),
        written => written.map(drop),
    }
}

/// Whether two sets of names are equal, with absent and empty fields treated alike.
fn same_names(a: &Value, b: &Value) -> bool {
    let said = |names: &Value| -> Vec<(String, Value)> {
        let fields = names.as_object().into_iter().flatten();
        let empty = |value: &Value| value.is_null() || *value == "" || value.as_array().is_some_and(Vec::is_empty);
        fields.filter(|(_, value)| !empty(value)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    said(a) == said(b)
}
