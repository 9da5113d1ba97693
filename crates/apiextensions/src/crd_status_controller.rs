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
use apiserver_core::{document, storage::ObjectStorage};
use store::CacheWatcher;
use tokio::{task::JoinSet, time};
use tokio_util::sync::CancellationToken;

use super::{
    CustomResourceDefinitions, crd_finalizer,
    crd_index::CrdSummary,
    crd_registration::CrdRegistration,
    crd_status::update_crd_status,
    names_accepted::{self, OccupiedNames},
    set_condition,
};

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Runs the controller until `over` is cancelled.
pub async fn run(storage: Arc<dyn ObjectStorage>, crds: Arc<CustomResourceDefinitions>, stop: CancellationToken) {
    let Ok(resource) = super::crd_resource() else { return };
    let mut controller = CrdStatusController {
        prefix: document::storage_key(resource, "", ""),
        storage,
        crds,
        queue: BTreeSet::new(),
        deleting: HashSet::new(),
        deletions: JoinSet::new(),
        services: CrdRegistration::default(),
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = controller.run_worker() => {}
    }
}

struct CrdStatusController {
    storage: Arc<dyn ObjectStorage>,
    crds: Arc<CustomResourceDefinitions>,
    prefix: String,
    /// Work queue: names of CRDs to reconcile.
    queue: BTreeSet<String>,
    /// UIDs of CRDs whose instances are being deleted. Not names, because a CRD may be recreated at once.
    deleting: HashSet<String>,
    deletions: JoinSet<(Arc<CrdSummary>, Result<(), Status>)>,
    services: CrdRegistration,
}

impl CrdStatusController {
    async fn run_worker(&mut self) {
        loop {
            let begun = self.start_watch();
            let mut watcher = match begun {
                Ok(watcher) => watcher,
                Err(error) => {
                    tracing::error!(%error, "CRD controller: watch failed, retrying");
                    time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            while self.process_queue(&mut watcher).await.is_ok() {}
        }
    }

    /// Queues all CRDs and starts watching for changes.
    fn start_watch(&mut self) -> Result<CacheWatcher, store::StoreError> {
        let cache = &self.crds.cache;
        let watcher = cache.watch_prefix(&self.prefix, cache.cached_snapshot(&self.prefix).revision)?;
        self.queue = self.crds.summaries().iter().map(|one| one.name.clone()).collect();
        Ok(watcher)
    }

    /// Reconciles the queued CRDs, then waits for a change. On `Err`, changes were lost and all CRDs must be listed
    /// again.
    async fn process_queue(&mut self, watcher: &mut CacheWatcher) -> Result<(), store::StoreError> {
        for name in std::mem::take(&mut self.queue) {
            if let Err(status) = self.reconcile_crd(&name).await {
                tracing::warn!(name, status.message, "CRD controller: status update failed, requeuing");
                self.queue.insert(name);
            }
        }
        let served = self.crds.served_resources();
        let registered = self.services.reconcile(&*self.storage, &served).await;
        if let Err(status) = &registered {
            tracing::warn!(status.message, "CRD controller: APIService registration failed, retrying");
        }
        let again = !self.queue.is_empty() || registered.is_err();
        tokio::select! {
            () = watcher.wait_for_change() => {}
            Some(done) = self.deletions.join_next() => self.finish_deletion(done),
            () = time::sleep(RETRY_DELAY), if again => {}
        }
        for change in watcher.take_changes(usize::MAX)? {
            let Some(name) = change.key().strip_prefix(&self.prefix) else { continue };
            self.queue.insert(name.to_owned());
            if change.item.is_none() {
                self.requeue_conflicting_names();
            }
        }
        Ok(())
    }

    /// Requeues CRDs with name conflicts, because names may have become free.
    fn requeue_conflicting_names(&mut self) {
        let conflicting = |one: &Arc<CrdSummary>| (one.names_accepted == Some(false)).then(|| one.name.clone());
        self.queue.extend(self.crds.summaries().iter().filter_map(conflicting));
    }

    fn finish_deletion(&mut self, done: Result<(Arc<CrdSummary>, Result<(), Status>), tokio::task::JoinError>) {
        let Ok((summary, result)) = done else { return };
        self.deleting.remove(&summary.uid);
        if let Err(status) = result {
            tracing::warn!(summary.name, status.message, "CRD finalizer: deletion of instances failed, requeuing");
            self.queue.insert(summary.name.clone());
        }
    }

    async fn reconcile_crd(&mut self, name: &str) -> Result<(), Status> {
        let Some(summary) = self.crds.summary(name) else { return Ok(()) };
        if summary.deleting {
            if summary.finalizer && self.deleting.insert(summary.uid.clone()) {
                let (storage, crds) = (self.storage.clone(), self.crds.clone());
                self.deletions.spawn(async move {
                    let result = crd_finalizer::finalize_crd(&*storage, &crds, &summary).await;
                    if result.is_err() {
                        time::sleep(RETRY_DELAY).await;
                    }
                    (summary, result)
                });
            }
            return Ok(());
        }
        let all = self.crds.summaries();
        let occupied =
            OccupiedNames::collect(&summary.group, all.iter().map(|one| &**one).filter(|one| one.name != name));
        let decision = names_accepted::decide_names(&summary.requested, &summary.accepted, &occupied);
        let is_settled =
            summary.names_accepted == Some(decision.condition.0) && names_equal(&decision.accepted, &summary.accepted);
        let (accepted, reason, message) = &decision.condition;
        if is_settled && (summary.established || !accepted) && summary.approval.is_none() {
            return Ok(());
        }
        update_crd_status(&*self.storage, &summary, |crd| {
            meta::field_mut(crd, "status").insert("acceptedNames".into(), decision.accepted.clone());
            set_condition(crd, ["NamesAccepted", if *accepted { "True" } else { "False" }, reason, message]);
            if *accepted && !super::is_condition_true(crd, "Established") {
                let words = ["InitialNamesAccepted", "the initial names have been accepted"];
                set_condition(crd, ["Established", "True", words[0], words[1]]);
            } else if !accepted && super::find_condition(crd, "Established").is_none() {
                set_condition(crd, ["Established", "False", "NotAccepted", "not all names are accepted"]);
            }
            if let Some(approval) = &summary.approval {
                approval.record(crd);
            }
        })
        .await?;
        if summary.names_accepted != Some(false) || !accepted {
            self.requeue_conflicting_names();
            self.queue.remove(name);
        }
        Ok(())
    }
}

/// Whether two sets of names are equal, with absent and empty fields treated alike.
fn names_equal(a: &Value, b: &Value) -> bool {
    let non_empty_fields = |names: &Value| -> Vec<(String, Value)> {
        let fields = names.as_object().into_iter().flatten();
        let empty = |value: &Value| value.is_null() || *value == "" || value.as_array().is_some_and(Vec::is_empty);
        fields.filter(|(_, value)| !empty(value)).map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    non_empty_fields(a) == non_empty_fields(b)
}
