//! statefulset-controller: pods with stable names, storage and order.

mod identity;
mod pod_writer;
mod retention;
mod revisions;
mod status;
mod sync_error;
mod update;

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, CONSISTENCY_RECHECK, ConsistencyStore, EventRecorder, RequeueAction, SharedInformer};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetStatus};
use kube::{Api, ResourceExt, api::PostParams, core::Selector};

use self::{pod_writer::StatefulPodWriter, sync_error::StatefulSetSyncError, update::StatefulSetUpdate};
use crate::{
    ControllerContext,
    conflict_retry::{ConflictRetry, DEFAULT_RETRY},
    controller::{Controller, ControllerWatches, run_controller},
    controller_history::RevisionHistory,
    controller_ref::{self, SelectingController},
    object_key::ObjectKey,
    pod_availability::time_until_available,
    pod_view::PodView,
};

struct StatefulSetController {
    sets: SharedInformer<StatefulSet>,
    history: RevisionHistory,
    writer: StatefulPodWriter,
    consistency: Arc<ConsistencyStore>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let consistency = Arc::new(ConsistencyStore::new());
    let build = |_| StatefulSetController {
        sets: context.informers.informer_for(),
        history: RevisionHistory { client: context.client.clone(), revisions: context.informers.informer_for() },
        writer: StatefulPodWriter {
            client: context.client.clone(),
            pods: context.informers.informer_for(),
            claims: context.informers.informer_for(),
            consistency: consistency.clone(),
            recorder: EventRecorder::new(context.client.clone(), "statefulset-controller", None),
        },
        consistency,
    };
    run_controller(&context, build).await;
}

impl Controller for StatefulSetController {
    type Key = ObjectKey;
    type Error = StatefulSetSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.writer.pods);
        controller_ref::index_by_controller(&self.history.revisions);
        controller_ref::index_by_namespace(&self.sets);
        watches.add(&self.sets, |_, event, queue| queue.add(ObjectKey::from_object(event.object().as_ref())));
        watches.add(&self.writer.pods, |this, event, queue| {
            controller_ref::enqueue_controllers(&this.sets, event, |key| queue.add(key));
        });
        watches.require_cache(&self.writer.claims);
        watches.require_cache(&self.history.revisions);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, StatefulSetSyncError> {
        if !self.consistency.is_ready(&key.to_string()) {
            return Ok(RequeueAction::After(CONSISTENCY_RECHECK));
        }
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.consistency.forget(&key.to_string());
            return Ok(RequeueAction::AwaitChange);
        };
        let Some(selector) = set.selector() else { return Ok(RequeueAction::AwaitChange) };
        self.adopt_orphan_revisions(&set, &selector).await?;
        let pods = self.claim_pods(&set, &selector).await?;
        let now = Timestamp::now();
        let status = self.update_stateful_set(&set, &selector, &pods, now).await?;
        Ok(next_availability_check(&set, &status, &pods, now).map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }
}

impl StatefulSetController {
    async fn adopt_orphan_revisions(&self, set: &StatefulSet, selector: &Selector) -> Result<(), StatefulSetSyncError> {
        let mut orphans = self.history.list(&set.metadata, selector);
        orphans.retain(|revision| controller_ref::controller_of(&revision.metadata).is_none());
        if orphans.is_empty() {
            return Ok(());
        }
        controller_ref::check_can_adopt(&self.writer.client, set).await?;
        for revision in orphans {
            self.history.adopt(set, &revision).await?;
        }
        Ok(())
    }

    /// Returns the pods of the set; those whose names do not derive from the set's are released.
    async fn claim_pods(&self, set: &StatefulSet, selector: &Selector) -> Result<Vec<Arc<PodView>>, kube::Error> {
        let candidates = controller_ref::claim_candidates(&self.writer.pods, &set.metadata);
        let matches = |pod: &_| controller_ref::selector_matches(selector, pod) && identity::is_member(set, pod);
        controller_ref::ObjectClaim { client: &self.writer.client, owner: set, finalizers: &[] }
            .claim_if(matches, candidates)
            .await
    }

    /// Acts on the pods, writes the status and deletes excess revisions, even if an earlier step failed.
    async fn update_stateful_set(
        &self,
        set: &StatefulSet,
        selector: &Selector,
        pods: &[Arc<PodView>],
        now: Timestamp,
    ) -> Result<StatefulSetStatus, StatefulSetSyncError> {
        let history = self.history.list(&set.metadata, selector);
        let revisions = revisions::sync_revisions(&self.history, set, &history).await;
        let result = match &revisions {
            Ok(revisions) => {
                let update = StatefulSetUpdate { writer: &self.writer, set, now };
                match update.update_pods(revisions, pods).await {
                    Ok((status, failure)) => self.finish_update(set, status, failure).await,
                    Err(error) => Err(error),
                }
            }
            Err(_) => Ok(StatefulSetStatus::default()),
        };
        let truncated = self.truncate_history(set, pods, &history, revisions.as_ref().ok()).await;
        revisions?;
        let status = result?;
        truncated?;
        Ok(status)
    }

    async fn truncate_history(
        &self,
        set: &StatefulSet,
        pods: &[Arc<PodView>],
        history: &[Arc<ControllerRevision>],
        used: Option<&revisions::StatefulSetRevisions>,
    ) -> Result<(), kube::Error> {
        for revision in revisions::excess_revisions(set, pods, history, used) {
            self.history.delete(&revision).await?;
        }
        Ok(())
    }

    /// Writes the status and returns it, or the failure of the pass.
    async fn finish_update(
        &self,
        set: &StatefulSet,
        mut status: StatefulSetStatus,
        failure: Option<StatefulSetSyncError>,
    ) -> Result<StatefulSetStatus, StatefulSetSyncError> {
        status::complete_rolling_update(set, &mut status);
        let written = match status::is_status_outdated(set, &status) {
            true => self.write_status(set, &status).await,
            false => Ok(()),
        };
        match failure {
            Some(failure) => Err(failure),
            None => written.map(|()| status).map_err(StatefulSetSyncError::Api),
        }
    }

    /// Writes the status, after a conflict on the set that the cache has by then.
    async fn write_status(&self, set: &StatefulSet, status: &StatefulSetStatus) -> Result<(), kube::Error> {
        let (key, name) = (ObjectKey::from_object(set), set.name_any());
        let api: Api<StatefulSet> = Api::namespaced(self.writer.client.clone(), &key.namespace);
        let (mut update, mut retry) = (set.clone(), ConflictRetry::new(DEFAULT_RETRY));
        loop {
            update.status = Some(status.clone());
            match api.replace_status(&name, &PostParams::default(), &update).await {
                Ok(written) => {
                    self.consistency.record_write(&key.to_string(), &self.sets, &written.metadata);
                    return Ok(());
                }
                Err(error) if !retry.wait_for_retry(error.is_conflict()).await => return Err(error),
                Err(_) => update = self.sets.get(&key.namespace, &name).map_or(update, Arc::unwrap_or_clone),
            }
        }
    }
}

/// Returns the time until the next ready pod becomes available.
fn next_availability_check(
    set: &StatefulSet,
    status: &StatefulSetStatus,
    pods: &[Arc<PodView>],
    now: Timestamp,
) -> Option<Duration> {
    let min_ready = identity::min_ready_seconds(set);
    if min_ready <= 0 || status.ready_replicas == status.available_replicas {
        return None;
    }
    let left = pods.iter().filter_map(|pod| time_until_available(pod, min_ready, now)).filter(|left| !left.is_zero());
    Some(left.min().unwrap_or(Duration::from_secs(min_ready.unsigned_abs().into())))
}
