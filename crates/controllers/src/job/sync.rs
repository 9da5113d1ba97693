//! One sync of a Job: manages its pods, writes its status and removes the finalizers of counted pods.

use std::sync::Arc;

use client::ApiErrorExt;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    JobController, JobQueueKey, JobSyncError, SYNC_BATCH_PERIOD,
    manage::{PodPlan, plan_pods},
    pods::{TRACKING_FINALIZER, has_tracking_finalizer, new_job_pod, pod_uid},
    spec::{ensure_condition, is_suspended, new_condition},
    state::{JobState, JobSyncInput, SUCCESS_CRITERIA_MET, count_i32},
    tracking::{TrackingPlan, count_pods_without_finalizer, finish_job, non_zero, plan_tracking},
};
use crate::{
    controller_ref::{self, ObjectClaim, SelectingController},
    object_key::ObjectKey,
    pod_availability::is_pod_ready,
    pod_view::PodView,
    slow_start::slow_start_batch,
};

/// Progress of a sync that manages pods.
struct JobSync<'a> {
    controller: &'a JobController,
    key: &'a ObjectKey,
    state: JobState,
}

/// Syncs a Job that is not finished.
pub(super) async fn sync_job(
    controller: &JobController,
    key: &ObjectKey,
    job: Arc<Job>,
    spec: JobSpec,
) -> Result<(), JobSyncError> {
    // Read before listing pods: later events can only make the list newer.
    let is_settled = controller.expectations.is_satisfied(&key.to_string());
    let input = JobSyncInput {
        pods: claim_pods(controller, &job).await?,
        expected_removals: controller.memory.expected_removals(key),
        backoff: controller.memory.backoff(key),
        now: Timestamp::now(),
        job: Arc::unwrap_or_clone(job),
        spec,
    };
    let mut sync = JobSync { controller, key, state: JobState::new(input) };
    if let Some(delay) = sync.state.deadline_in {
        controller.queue.add_after(JobQueueKey::Job(key.clone()), delay);
    }
    let (managed, suspend_changed) = match sync.state.finished {
        Some(_) => (sync.delete_active_pods(is_settled).await, false),
        None => sync.manage_unfinished_job(is_settled).await,
    };
    sync.track_status(suspend_changed).await?;
    managed
}

async fn claim_pods(controller: &JobController, job: &Job) -> Result<Vec<Arc<PodView>>, JobSyncError> {
    let selector = job.selector().ok_or(JobSyncError::Selector)?;
    let candidates = controller_ref::claim_candidates(&controller.pods, &job.metadata);
    let claim = ObjectClaim { client: &controller.client, owner: job, finalizers: &[TRACKING_FINALIZER] };
    Ok(claim.claim_if(|object| controller_ref::selector_matches(&selector, object), candidates).await?)
}

impl JobSync<'_> {
    /// Deletes the active pods of a Job whose end is decided. The end is put off while pods may be missing in the cache.
    async fn delete_active_pods(&mut self, is_settled: bool) -> Result<(), JobSyncError> {
        let pods = self.state.active_pods.clone();
        let results = join_all(pods.iter().map(|pod| self.delete_pod(pod))).await;
        let deleted = self.count_deleted(&pods, &results);
        if deleted != pods.len() || !is_settled {
            self.state.finished = None;
        }
        first_error(results)
    }

    /// Creates or deletes pods, then checks for completion and suspension. Returns whether a condition changed.
    async fn manage_unfinished_job(&mut self, is_settled: bool) -> (Result<(), JobSyncError>, bool) {
        let is_managed = is_settled && self.state.job.metadata.deletion_timestamp.is_none();
        let managed = match is_managed {
            true => self.manage_pods().await,
            false => Ok(()),
        };
        let state = &mut self.state;
        let is_complete = match state.spec.completions {
            None => state.succeeded > 0 && state.active == 0,
            Some(completions) => state.succeeded >= completions && state.active == 0,
        };
        if is_complete {
            let message = "Reached expected number of succeeded pods";
            state.finished = Some(new_condition(SUCCESS_CRITERIA_MET, "CompletionsReached", message, state.now));
        }
        (managed, !is_complete && is_managed && self.update_suspended_condition())
    }

    fn update_suspended_condition(&mut self) -> bool {
        let now = self.state.now;
        let state = &mut self.state;
        let (status, reason, event, message) = match is_suspended(&state.spec) {
            true => ("True", "JobSuspended", "Suspended", "Job suspended"),
            false => ("False", "JobResumed", "Resumed", "Job resumed"),
        };
        let condition = JobCondition { status: status.into(), ..new_condition("Suspended", reason, message, now) };
        let changed = ensure_condition(state.status.conditions.get_or_insert_default(), condition);
        if changed {
            // The active deadline runs while the Job is not suspended.
            state.status.start_time = (status == "False").then_some(Time(now));
            self.controller.pod_control.recorder.record_normal(state.job.object_ref(&()), event, message);
        }
        changed
    }

    async fn manage_pods(&mut self) -> Result<(), JobSyncError> {
        match plan_pods(&self.state) {
            PodPlan::Keep => Ok(()),
            PodPlan::Wait(delay) => {
                let delay = delay.max(SYNC_BATCH_PERIOD);
                self.controller.queue.add_after(JobQueueKey::Job(self.key.clone()), delay);
                Ok(())
            }
            PodPlan::Delete(pods) => self.delete_surplus_pods(pods).await,
            PodPlan::Create(indexes) => self.create_pods(indexes).await,
        }
    }

    async fn delete_surplus_pods(&mut self, pods: Vec<Arc<PodView>>) -> Result<(), JobSyncError> {
        let expectation = self.key.to_string();
        let expectations = &self.controller.expectations;
        expectations.expect_deletions(&expectation, pods.iter().map(|pod| pod_uid(pod).to_owned()));
        let results = join_all(pods.iter().map(|pod| self.delete_surplus_pod(pod, &expectation))).await;
        self.count_deleted(&pods, &results);
        first_error(results)
    }

    /// Deletes a pod that need not be counted, so without its finalizer.
    async fn delete_surplus_pod(&self, pod: &PodView, expectation: &str) -> Result<(), kube::Error> {
        let about = self.state.job.object_ref(&());
        let deleted = match self.remove_finalizer(pod).await {
            Ok(()) => self.controller.pod_control.delete_pod(&pod.name_any(), &about).await,
            Err(error) => Err(error),
        };
        if deleted.is_err() {
            self.controller.expectations.deletion_observed(expectation, pod_uid(pod));
        }
        ignore_not_found(deleted)
    }

    fn count_deleted(&mut self, pods: &[Arc<PodView>], results: &[Result<(), kube::Error>]) -> usize {
        let deleted = results.iter().filter(|result| result.is_ok()).count();
        self.state.active -= count_i32(deleted);
        self.state.terminating += count_i32(deleted);
        self.state.ready -= count_i32(pods.iter().filter(|pod| is_pod_ready(pod)).count());
        deleted
    }

    async fn delete_pod(&self, pod: &PodView) -> Result<(), kube::Error> {
        let about = self.state.job.object_ref(&());
        ignore_not_found(self.controller.pod_control.delete_pod(&pod.name_any(), &about).await)
    }

    async fn create_pods(&mut self, indexes: Vec<Option<i64>>) -> Result<(), JobSyncError> {
        let (expectation, expectations) = (self.key.to_string(), &self.controller.expectations);
        expectations.expect_creations(&expectation, indexes.len());
        let pods: Vec<Pod> = indexes
            .iter()
            .map(|index| {
                let replaced = index.and_then(|index| self.state.delayed_deletions.get(&index));
                new_job_pod(&self.state.job, &self.state.spec, *index, replaced.map(Arc::as_ref))
            })
            .collect();
        let (created, result) = slow_start_batch(pods.len(), |at| self.create_pod(pods.get(at))).await;
        // Pods that were not created produce no event.
        (created..pods.len()).for_each(|_| expectations.creation_observed(&expectation));
        self.state.active += count_i32(created);
        result.map_err(JobSyncError::Api)
    }

    async fn create_pod(&self, pod: Option<&Pod>) -> Result<bool, kube::Error> {
        let Some(pod) = pod else { return Ok(false) };
        match self.controller.pod_control.create_pod(pod, &self.state.job.object_ref(&())).await {
            Ok(created) => {
                self.record_pod_write(&created.metadata);
                Ok(true)
            }
            // Counted as created, as upstream does: the next sync waits until the expectation expires, and the Job is
            // deleted with its namespace before that.
            Err(error) if error.is_namespace_terminating() => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn record_pod_write(&self, written: &ObjectMeta) {
        let controller = self.controller;
        controller.consistency.record_write(&self.key.to_string(), &controller.pods, written);
    }

    async fn remove_finalizer(&self, pod: &PodView) -> Result<(), kube::Error> {
        if let Some(written) = self.controller.remove_finalizer(pod).await? {
            self.record_pod_write(&written.metadata);
        }
        Ok(())
    }

    /// Writes the counters, removes finalizers of the pods that are then counted, and writes the final condition.
    async fn track_status(&mut self, mut needs_flush: bool) -> Result<(), JobSyncError> {
        let state = &mut self.state;
        let (active, ready, terminating) = (non_zero(state.active), Some(state.ready), Some(state.terminating));
        needs_flush |= state.status.active.and_then(non_zero) != active
            || state.status.ready != ready
            || state.status.terminating != terminating;
        (state.status.active, state.status.ready, state.status.terminating) = (active, ready, terminating);
        let plan = plan_tracking(state, needs_flush);
        let reached_maximum = plan.reached_maximum;
        let mut needs_flush = self.flush_and_remove_finalizers(plan).await?;
        let finished = finish_job(&mut self.state, reached_maximum);
        needs_flush |= finished.is_some();
        if needs_flush {
            self.update_status().await?;
        }
        if let Some(condition) = finished {
            self.record_finished(&condition);
            self.controller.memory.set_finished(self.key, &self.state.job);
        }
        Ok(())
    }

    /// Returns whether the counters changed after the status was written.
    async fn flush_and_remove_finalizers(&mut self, plan: TrackingPlan) -> Result<bool, JobSyncError> {
        let TrackingPlan { needs_flush, removable, mut with_finalizer, .. } = plan;
        if needs_flush {
            self.update_status().await?;
            self.controller.memory.set_backoff(self.key, self.state.backoff);
        }
        self.controller.memory.expect_removals(self.key, removable.iter().map(Arc::as_ref));
        let results = join_all(removable.iter().map(|pod| self.remove_counted_finalizer(pod))).await;
        for (pod, result) in removable.iter().zip(&results) {
            if result.is_ok() {
                with_finalizer.remove(pod_uid(pod));
            }
        }
        let counted = count_pods_without_finalizer(&mut self.state.status, &with_finalizer);
        let removed = first_error(results);
        if removed.is_err() && counted {
            self.update_status().await?;
        }
        removed.map(|()| counted)
    }

    async fn remove_counted_finalizer(&self, pod: &PodView) -> Result<(), kube::Error> {
        let removed = self.remove_finalizer(pod).await;
        if removed.is_err() {
            // No event will show the removal.
            self.controller.memory.removal_observed(self.key, pod);
        }
        ignore_not_found(removed)
    }

    async fn update_status(&mut self) -> Result<(), JobSyncError> {
        let api: Api<Job> = Api::namespaced(self.controller.client.clone(), &self.key.namespace);
        let mut job = self.state.job.clone();
        job.status = Some(self.state.status.clone());
        let mut written = api.replace_status(&self.key.name, &PostParams::default(), &job).await?;
        let controller = self.controller;
        controller.consistency.record_write(&self.key.to_string(), &controller.jobs, &written.metadata);
        self.state.status = written.status.take().unwrap_or_default();
        self.state.job = written;
        Ok(())
    }

    fn record_finished(&self, condition: &JobCondition) {
        let (recorder, about) = (&self.controller.pod_control.recorder, self.state.job.object_ref(&()));
        let (reason, message) = (condition.reason.as_deref().unwrap_or(""), condition.message.as_deref().unwrap_or(""));
        if condition.type_ != "Complete" {
            return recorder.record_warning(about, reason, message);
        }
        if self.state.spec.completions.is_some_and(|desired| self.state.status.succeeded.unwrap_or(0) > desired) {
            let message = "Too many succeeded pods running after completion count reached";
            recorder.record_warning(about.clone(), "TooManySucceededPods", message);
        }
        recorder.record_normal(about, "Completed", "Job completed");
    }
}

impl JobController {
    /// Removes the tracking finalizer, if the pod has it; returns the pod that was written.
    pub(super) async fn remove_finalizer(&self, pod: &PodView) -> Result<Option<PodView>, kube::Error> {
        if !has_tracking_finalizer(pod) {
            return Ok(None);
        }
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        let api: Api<PodView> = Api::namespaced(self.client.clone(), namespace);
        api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await.map(Some)
    }
}

/// Treats an object that is gone as a success.
pub(super) fn ignore_not_found(result: Result<(), kube::Error>) -> Result<(), kube::Error> {
    result.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

fn first_error(results: Vec<Result<(), kube::Error>>) -> Result<(), JobSyncError> {
    results.into_iter().collect::<Result<(), _>>().map_err(JobSyncError::Api)
}
