//! job-controller: runs the pods of a Job until enough of them succeed or too many fail, and counts each exactly once.

mod backoff;
mod intervals;
mod manage;
mod pods;
mod policies;
mod spec;
mod state;
mod stores;
mod sync;
#[cfg(test)]
mod tests;
mod tracking;

use std::time::Duration;

use client::{
    ApiErrorExt, BackoffBounds, ConsistencyStore, ControllerExpectations, EventRecorder, RequeueAction, ResourceEvent,
    SharedInformer, WorkQueue,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Resource, core::Selector};

use self::{
    pods::{has_tracking_finalizer, pod_uid},
    spec::is_managed_externally,
    stores::JobMemory,
    sync::ignore_not_found,
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref::{self, SelectingController},
    job_conditions::is_job_finished,
    object_key::ObjectKey,
    pod_control::PodControl,
    pod_view::PodView,
};

/// Delay that collects pod events and status updates into one sync.
const SYNC_BATCH_PERIOD: Duration = Duration::from_secs(1);

/// A key of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum JobQueueKey {
    /// A Job to sync.
    Job(ObjectKey),
    /// A pod without a Job that would remove its finalizer.
    OrphanPod(ObjectKey),
    /// Pods of a finished or deleted Job, by its uid.
    PodsOfJob(String),
}

/// A Job could not be synced.
#[derive(Debug, thiserror::Error)]
enum JobSyncError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the Job has no valid selector")]
    Selector,
}

struct JobController {
    client: Client,
    jobs: SharedInformer<Job>,
    pods: SharedInformer<PodView>,
    queue: WorkQueue<JobQueueKey>,
    expectations: ControllerExpectations,
    consistency: ConsistencyStore,
    memory: JobMemory,
    pod_control: PodControl,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |queue| JobController {
        jobs: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        queue,
        expectations: ControllerExpectations::new(),
        consistency: ConsistencyStore::new(),
        memory: JobMemory::default(),
        pod_control: PodControl {
            client: context.client.clone(),
            recorder: EventRecorder::new(context.client.clone(), "job-controller", None),
        },
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl SelectingController for Job {
    fn selector(&self) -> Option<Selector> {
        let selector = self.spec.as_ref().and_then(|spec| spec.selector.clone())?;
        Selector::try_from(selector).ok()
    }
}

impl Controller for JobController {
    type Key = JobQueueKey;
    type Error = JobSyncError;
    const WORKERS: usize = 5;
    const BACKOFF: BackoffBounds = BackoffBounds { base: Duration::from_secs(1), max: Duration::from_secs(60) };

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.pods);
        controller_ref::index_by_namespace(&self.jobs);
        watches.add(&self.jobs, |this, event, _| this.handle_job_event(event));
        watches.add(&self.pods, |this, event, _| this.handle_pod_event(event));
    }

    async fn sync(&self, key: &JobQueueKey) -> Result<RequeueAction, JobSyncError> {
        match key {
            JobQueueKey::Job(key) => return self.sync_job(key).await,
            JobQueueKey::OrphanPod(key) => {
                if let Some(pod) = self.pods.get(&key.namespace, &key.name) {
                    self.sync_orphan_pod(&pod).await?;
                }
            }
            JobQueueKey::PodsOfJob(uid) => {
                for pod in controller_ref::controlled_objects(&self.pods, uid) {
                    self.sync_orphan_pod(&pod).await?;
                }
            }
        }
        Ok(RequeueAction::AwaitChange)
    }
}

impl JobController {
    fn handle_job_event(&self, event: &ResourceEvent<Job>) {
        let job = event.object();
        let key = ObjectKey::from_object(job.as_ref());
        match event {
            ResourceEvent::Added(_) => self.queue.add(JobQueueKey::Job(key)),
            ResourceEvent::Deleted(_) => {
                self.memory.forget(&key);
                self.consistency.forget(&key.to_string());
                self.enqueue_pods_of(job);
                self.queue.add(JobQueueKey::Job(key));
            }
            // All finalizers are gone before a Job is marked as finished; this is a second line of defence.
            ResourceEvent::Updated { new, .. } if is_job_finished(new) => {
                self.enqueue_pods_of(new);
                self.queue.add(JobQueueKey::Job(key));
            }
            ResourceEvent::Updated { old, new } => {
                let delay = match old.metadata.generation == new.metadata.generation {
                    true => SYNC_BATCH_PERIOD,
                    false => Duration::ZERO,
                };
                self.queue.add_after(JobQueueKey::Job(key.clone()), delay);
                if let Some(delay) = changed_deadline(old, new) {
                    self.queue.add_after(JobQueueKey::Job(key), delay);
                }
            }
        }
    }

    fn enqueue_pods_of(&self, job: &Job) {
        self.queue.add(JobQueueKey::PodsOfJob(job.metadata.uid.clone().unwrap_or_default()));
    }

    fn handle_pod_event(&self, event: &ResourceEvent<PodView>) {
        let pod = event.object();
        match event {
            ResourceEvent::Deleted(_) => self.handle_pod_deletion(pod, true),
            _ if pod.metadata.deletion_timestamp.is_some() => self.handle_pod_deletion(pod, false),
            _ => self.handle_pod_change(event),
        }
    }

    fn handle_pod_change(&self, event: &ResourceEvent<PodView>) {
        let pod = event.object();
        match event {
            ResourceEvent::Updated { old, new } if !has_tracking_finalizer(new) => {
                for meta in [&old.metadata, &new.metadata] {
                    if let Some(job) = controller_ref::resolve_controller(&self.jobs, meta) {
                        self.memory.removal_observed(&ObjectKey::from_object(job.as_ref()), new);
                    }
                }
            }
            ResourceEvent::Added(_) => {
                if let Some(job) = controller_ref::resolve_controller(&self.jobs, &pod.metadata) {
                    self.expectations.creation_observed(&ObjectKey::from_object(job.as_ref()).to_string());
                }
            }
            _ => {}
        }
        controller_ref::enqueue_controllers(&self.jobs, event, |key| self.enqueue_batched(key));
        if controller_ref::controller_of(&pod.metadata).is_none() {
            self.enqueue_orphan_pod(pod);
        }
    }

    /// Observes a deletion once it begins, so that the replacement need not wait for the grace period.
    fn handle_pod_deletion(&self, pod: &PodView, is_final: bool) {
        let job = controller_ref::resolve_controller(&self.jobs, &pod.metadata);
        match job.filter(|job| !is_job_finished(job)) {
            Some(job) => {
                let key = ObjectKey::from_object(job.as_ref());
                self.expectations.deletion_observed(&key.to_string(), pod_uid(pod));
                if is_final || !has_tracking_finalizer(pod) {
                    self.memory.removal_observed(&key, pod);
                }
                self.enqueue_batched(key);
            }
            None => self.enqueue_orphan_pod(pod),
        }
    }

    fn enqueue_batched(&self, key: ObjectKey) {
        self.queue.add_after(JobQueueKey::Job(key), SYNC_BATCH_PERIOD);
    }

    fn enqueue_orphan_pod(&self, pod: &PodView) {
        if has_tracking_finalizer(pod) {
            self.queue.add(JobQueueKey::OrphanPod(ObjectKey::from_object(pod)));
        }
    }

    async fn sync_job(&self, key: &ObjectKey) -> Result<RequeueAction, JobSyncError> {
        if !self.consistency.is_ready(&key.to_string()) {
            return Ok(RequeueAction::Backoff);
        }
        let Some(job) = self.jobs.get(&key.namespace, &key.name) else {
            self.expectations.forget(&key.to_string());
            self.memory.forget(key);
            return Ok(RequeueAction::AwaitChange);
        };
        if is_managed_externally(&job) {
            return Ok(RequeueAction::AwaitChange);
        }
        if is_job_finished(&job) {
            self.memory.forget(key);
            self.consistency.forget(&key.to_string());
            return Ok(RequeueAction::AwaitChange);
        }
        let Some(spec) = job.spec.clone().filter(|_| !self.memory.is_finished(key, &job)) else {
            return Ok(RequeueAction::AwaitChange);
        };
        if !spec::has_known_completion_mode(&spec) {
            let message = "Skipped Job sync because completion mode is unknown";
            self.pod_control.recorder.record_warning(job.object_ref(&()), "UnknownCompletionMode", message);
            return Ok(RequeueAction::AwaitChange);
        }
        match sync::sync_job(self, key, job, spec).await {
            // The cache is stale.
            Err(JobSyncError::Api(error)) if error.is_conflict() => Ok(RequeueAction::Backoff),
            result => result.map(|()| RequeueAction::AwaitChange),
        }
    }

    /// Removes the tracking finalizer unless a sync of the pod's Job will do so.
    async fn sync_orphan_pod(&self, pod: &PodView) -> Result<(), kube::Error> {
        if let Some(owner) = controller_ref::controller_of(&pod.metadata) {
            if owner.kind != Job::kind(&()) || owner.api_version != Job::api_version(&()) {
                return Ok(());
            }
            let job = controller_ref::resolve_controller(&self.jobs, &pod.metadata);
            if job.is_some_and(|job| is_managed_externally(&job) || !is_job_finished(&job)) {
                return Ok(());
            }
        }
        ignore_not_found(self.remove_finalizer(pod).await.map(drop))
    }
}

/// Returns the time until an `activeDeadlineSeconds` that changed.
fn changed_deadline(old: &Job, new: &Job) -> Option<Duration> {
    let deadline = |job: &Job| job.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
    let seconds = deadline(new).filter(|_| deadline(old) != deadline(new))?;
    let start = new.status.as_ref()?.start_time.as_ref()?.0;
    let left = SignedDuration::from_secs(seconds) - Timestamp::now().duration_since(start);
    Some(Duration::try_from(left).unwrap_or_default())
}
