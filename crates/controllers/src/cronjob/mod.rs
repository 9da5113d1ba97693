//! cronjob-controller: starts a Job at each time of a CronJob's schedule and cleans up finished ones.

mod jobs;
mod schedule;
mod sync;

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource, api::PostParams};

use self::sync::CronJobSync;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
};

/// Index of Jobs by namespace and name of their controller.
const BY_CONTROLLER_NAME: &str = "controller-name";

/// A CronJob could not be synced.
#[derive(Debug, thiserror::Error)]
enum CronJobSyncError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("could not replace job {0}")]
    Replace(ObjectKey),
}

struct CronJobController {
    client: Client,
    cron_jobs: SharedInformer<CronJob>,
    jobs: SharedInformer<Job>,
    recorder: EventRecorder,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| CronJobController {
        cron_jobs: context.informers.informer_for(),
        jobs: context.informers.informer_for(),
        recorder: EventRecorder::new(context.client.clone(), "cronjob-controller", None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for CronJobController {
    type Key = ObjectKey;
    type Error = CronJobSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.jobs.add_index(BY_CONTROLLER_NAME, |job| {
            let owner = controller_ref::controller_of(&job.metadata);
            let namespace = job.metadata.namespace.as_deref().unwrap_or("");
            owner.map(|owner| ObjectKey::new(namespace, &owner.name).to_string()).into_iter().collect()
        });
        watches.add(&self.cron_jobs, Self::handle_cron_job_event);
        watches.add(&self.jobs, Self::handle_job_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, CronJobSyncError> {
        match self.sync_cron_job(key).await {
            // The cache is stale.
            Err(CronJobSyncError::Api(error)) if error.is_conflict() => Ok(RequeueAction::Backoff),
            result => result,
        }
    }
}

impl CronJobController {
    /// Queues a CronJob at once, or at its next time if the schedule changed.
    fn handle_cron_job_event(&self, event: &ResourceEvent<CronJob>, queue: &WorkQueue<ObjectKey>) {
        let key = ObjectKey::from_object(event.object().as_ref());
        match event {
            ResourceEvent::Updated { old, new } if schedule::schedule_of(old) != schedule::schedule_of(new) => {
                match schedule::parse_schedule(new) {
                    Ok(parsed) => {
                        queue.add_after(key, schedule::time_until_next_schedule(new, &parsed, Timestamp::now()));
                    }
                    Err(_) => {
                        let message = format!("unparseable schedule for cronjob: {}", schedule::schedule_of(new).0);
                        self.recorder.record_warning(new.object_ref(&()), "UnParseableCronJobSchedule", message);
                    }
                }
            }
            _ => queue.add(key),
        }
    }

    /// Queues the current and previous owners of a Job.
    fn handle_job_event(&self, event: &ResourceEvent<Job>, queue: &WorkQueue<ObjectKey>) {
        if let ResourceEvent::Updated { old, .. } = event {
            self.enqueue_owner(&old.metadata, queue);
        }
        self.enqueue_owner(&event.object().metadata, queue);
    }

    fn enqueue_owner(&self, job: &ObjectMeta, queue: &WorkQueue<ObjectKey>) {
        if let Some(cron_job) = controller_ref::resolve_controller(&self.cron_jobs, job) {
            queue.add(ObjectKey::from_object(cron_job.as_ref()));
        }
    }

    async fn sync_cron_job(&self, key: &ObjectKey) -> Result<RequeueAction, CronJobSyncError> {
        let Some(cron_job) = self.cron_jobs.get(&key.namespace, &key.name) else {
            return Ok(RequeueAction::AwaitChange);
        };
        let jobs = self.jobs.by_index(BY_CONTROLLER_NAME, &key.to_string());
        let mut sync = CronJobSync::new(self, key, (*cron_job).clone(), Timestamp::now());
        sync.clean_up_finished_jobs(&jobs).await;
        let result = sync.reconcile(&jobs).await;
        if sync.status_changed {
            let api: Api<CronJob> = Api::namespaced(self.client.clone(), &key.namespace);
            api.replace_status(&key.name, &PostParams::default(), &sync.cron_job).await?;
        }
        result
    }
}
