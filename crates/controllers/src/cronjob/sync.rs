//! One sync of a CronJob: keeps `status.active`, and starts the Job of the most recent scheduled time.

use std::sync::Arc;

use api::cron::{CronSchedule, load_time_zone};
use client::{ApiErrorExt, RequeueAction};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use super::{
    CronJobController, CronJobSyncError,
    jobs::{job_from_template, job_name, jobs_beyond_limit},
    schedule::{MissedSchedules, most_recent_schedule, parse_schedule, schedule_of, time_until_next_schedule},
};
use crate::{controller_ref, job_conditions::finished_condition, object_key::ObjectKey};

/// A CronJob in a sync; its status is written once, at the end.
pub(super) struct CronJobSync<'a> {
    controller: &'a CronJobController,
    key: &'a ObjectKey,
    pub(super) cron_job: CronJob,
    pub(super) status_changed: bool,
    now: Timestamp,
}

impl<'a> CronJobSync<'a> {
    pub(super) fn new(
        controller: &'a CronJobController,
        key: &'a ObjectKey,
        cron_job: CronJob,
        now: Timestamp,
    ) -> Self {
        Self { controller, key, cron_job, status_changed: false, now }
    }

    /// Deletes the oldest finished Jobs above the history limits.
    pub(super) async fn clean_up_finished_jobs(&mut self, jobs: &[Arc<Job>]) {
        let spec = &self.cron_job.spec;
        let mut surplus = jobs_beyond_limit(jobs, "Complete", spec.successful_jobs_history_limit);
        surplus.extend(jobs_beyond_limit(jobs, "Failed", spec.failed_jobs_history_limit));
        for job in surplus {
            self.status_changed |= self.delete_job(&job).await;
        }
    }

    /// Updates the status from the Jobs and starts a Job that is due.
    pub(super) async fn reconcile(&mut self, jobs: &[Arc<Job>]) -> Result<RequeueAction, CronJobSyncError> {
        for job in jobs {
            self.observe_job(job).await?;
        }
        self.remove_missing_jobs(jobs).await?;
        if self.cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(RequeueAction::AwaitChange);
        }
        match self.due_schedule() {
            Due::Never => Ok(RequeueAction::AwaitChange),
            Due::Later(schedule) => Ok(self.requeue_at_next(&schedule)),
            Due::Now(schedule, scheduled) => self.start_job(&schedule, scheduled).await,
        }
    }

    fn status(&mut self) -> &mut CronJobStatus {
        self.cron_job.status.get_or_insert_default()
    }

    fn active(&self) -> &[ObjectReference] {
        self.cron_job.status.as_ref().and_then(|status| status.active.as_deref()).unwrap_or_default()
    }

    fn is_active(&self, uid: Option<&String>) -> bool {
        self.active().iter().any(|active| active.uid.as_ref() == uid)
    }

    fn remove_active(&mut self, uid: Option<&String>) {
        let active = &mut self.status().active;
        if let Some(jobs) = active {
            jobs.retain(|job| job.uid.as_ref() != uid);
        }
        *active = active.take().filter(|jobs| !jobs.is_empty());
    }

    fn record_normal(&self, reason: &str, message: String) {
        self.controller.recorder.record_normal(self.cron_job.object_ref(&()), reason, message);
    }

    fn record_warning(&self, reason: &str, message: String) {
        self.controller.recorder.record_warning(self.cron_job.object_ref(&()), reason, message);
    }

    fn job_api(&self) -> Api<Job> {
        Api::namespaced(self.controller.client.clone(), &self.key.namespace)
    }

    async fn observe_job(&mut self, job: &Job) -> Result<(), CronJobSyncError> {
        let uid = job.metadata.uid.as_ref();
        let is_active = self.is_active(uid);
        let Some(condition) = finished_condition(job) else {
            return if is_active { Ok(()) } else { self.observe_unexpected_job(job).await };
        };
        if is_active {
            self.remove_active(uid);
            let message = format!("Saw completed job: {}, condition: {}", job.name_any(), condition.type_);
            self.record_normal("SawCompletedJob", message);
            self.status_changed = true;
        }
        let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
        if condition.type_ == "Complete" && completed > self.status().last_successful_time {
            self.status().last_successful_time = completed;
            self.status_changed = true;
        }
        Ok(())
    }

    /// Reports an unfinished Job that is not in the active list, unless only the cache lacks it.
    async fn observe_unexpected_job(&mut self, job: &Job) -> Result<(), CronJobSyncError> {
        let api: Api<CronJob> = Api::namespaced(self.controller.client.clone(), &self.key.namespace);
        let fresh = api.get(&self.key.name).await?;
        let stale = std::mem::replace(&mut self.cron_job, fresh);
        if !self.is_active(job.metadata.uid.as_ref()) {
            self.cron_job = stale;
            let message = format!("Saw a job that the controller did not create or forgot: {}", job.name_any());
            self.record_warning("UnexpectedJob", message);
        }
        Ok(())
    }

    /// Removes Jobs that no longer exist from the active list.
    async fn remove_missing_jobs(&mut self, jobs: &[Arc<Job>]) -> Result<(), CronJobSyncError> {
        let is_known = |active: &ObjectReference| jobs.iter().any(|job| job.metadata.uid == active.uid);
        let missing: Vec<_> = self.active().iter().filter(|active| !is_known(active)).cloned().collect();
        for active in missing {
            let name = active.name.as_deref().unwrap_or("");
            // The cache may lag behind.
            if self.job_api().get_opt(name).await?.is_none() {
                self.record_normal("MissingJob", format!("Active job went missing: {name}"));
                self.remove_active(active.uid.as_ref());
                self.status_changed = true;
            }
        }
        Ok(())
    }

    /// Decides whether a Job is due, and reports schedules that cannot be followed.
    fn due_schedule(&self) -> Due {
        let (text, zone) = schedule_of(&self.cron_job);
        if let Some(Err(error)) = zone.map(load_time_zone) {
            self.record_warning("UnknownTimeZone", format!("invalid timeZone: {:?}: {error}", zone.unwrap_or("")));
            return Due::Never;
        }
        if self.cron_job.spec.suspend == Some(true) {
            return Due::Never;
        }
        if text.contains("TZ") {
            let message = format!(
                "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            );
            self.record_warning("UnsupportedSchedule", message);
        }
        let schedule = match parse_schedule(&self.cron_job) {
            Ok(schedule) => schedule,
            Err(error) => {
                self.record_warning("UnparseableSchedule", format!("unparseable schedule: {text:?} : {error}"));
                return Due::Never;
            }
        };
        let recent = match most_recent_schedule(&self.cron_job, &schedule, self.now, true) {
            Ok(recent) => recent,
            Err(error) => {
                self.record_warning("InvalidSchedule", format!("invalid schedule: {text} : {error}"));
                return Due::Never;
            }
        };
        let Some(scheduled) = recent.most_recent else { return Due::Later(schedule) };
        if recent.missed == MissedSchedules::Many {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.record_warning("TooManyMissedTimes", message.into());
        }
        if self.must_skip(scheduled) { Due::Later(schedule) } else { Due::Now(schedule, scheduled) }
    }

    /// Whether the scheduled time is too late, was processed already, or falls into another run that may not be
    /// joined.
    fn must_skip(&self, scheduled: Timestamp) -> bool {
        let deadline = self.cron_job.spec.starting_deadline_seconds;
        let latest = deadline.and_then(|seconds| scheduled.checked_add(SignedDuration::from_secs(seconds)).ok());
        if latest.is_some_and(|latest| latest < self.now) {
            let time = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
            self.record_warning("MissSchedule", format!("Missed scheduled time to start a job: {time}"));
            return true;
        }
        let name = job_name(&self.cron_job, scheduled);
        let last = self.cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        let is_active = self.active().iter().any(|active| active.name.as_ref() == Some(&name));
        if is_active || last.is_some_and(|last| last.0 == scheduled) {
            return true;
        }
        let forbids = self.cron_job.spec.concurrency_policy.as_deref() == Some("Forbid");
        if forbids && !self.active().is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.record_normal("JobAlreadyActive", message.into());
            return true;
        }
        false
    }

    async fn start_job(
        &mut self,
        schedule: &CronSchedule,
        scheduled: Timestamp,
    ) -> Result<RequeueAction, CronJobSyncError> {
        self.replace_active_jobs().await?;
        let api = self.job_api();
        let job = job_from_template(&self.cron_job, scheduled);
        let started = match api.create(&PostParams::default(), &job).await {
            Ok(started) => {
                self.record_normal("SuccessfulCreate", format!("Created job {}", started.name_any()));
                started
            }
            Err(error) if error.is_already_exists() => {
                // An earlier sync may have created it without writing the status.
                let existing = api.get(&job.name_any()).await?;
                let owner = controller_ref::controller_of(&existing.metadata).map(|owner| &owner.uid);
                let is_ours = owner.is_some() && owner == self.cron_job.metadata.uid.as_ref();
                if !is_ours || self.is_active(existing.metadata.uid.as_ref()) {
                    return Ok(RequeueAction::AwaitChange);
                }
                existing
            }
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.record_warning("FailedCreate", format!("Error creating job: {}", error.server_message()));
                }
                return Err(error.into());
            }
        };
        let reference =
            ObjectReference { resource_version: started.metadata.resource_version.clone(), ..started.object_ref(&()) };
        self.status().active.get_or_insert_default().push(reference);
        self.status().last_schedule_time = Some(Time(scheduled));
        self.status_changed = true;
        Ok(self.requeue_at_next(schedule))
    }

    /// Deletes the running Jobs if the concurrency policy is Replace.
    async fn replace_active_jobs(&mut self) -> Result<(), CronJobSyncError> {
        if self.cron_job.spec.concurrency_policy.as_deref() != Some("Replace") {
            return Ok(());
        }
        for active in self.active().to_vec() {
            let job = match self.job_api().get(active.name.as_deref().unwrap_or("")).await {
                Ok(job) => job,
                Err(error) => {
                    self.record_warning("FailedGet", format!("Get job: {}", error.server_message()));
                    return Err(error.into());
                }
            };
            if !self.delete_job(&job).await {
                return Err(CronJobSyncError::Replace(ObjectKey::from_object(&job)));
            }
            self.status_changed = true;
        }
        Ok(())
    }

    /// Deletes a Job with its pods; a failure is reported as an event.
    async fn delete_job(&mut self, job: &Job) -> bool {
        match self.job_api().delete(&job.name_any(), &DeleteParams::background()).await {
            Ok(_) => {
                self.remove_active(job.metadata.uid.as_ref());
                self.record_normal("SuccessfulDelete", format!("Deleted job {}", job.name_any()));
                true
            }
            // The cache does not have the deletion yet.
            Err(error) if error.is_not_found() => {
                self.remove_active(job.metadata.uid.as_ref());
                true
            }
            Err(error) => {
                self.record_warning("FailedDelete", format!("Deleted job: {}", error.server_message()));
                false
            }
        }
    }

    fn requeue_at_next(&self, schedule: &CronSchedule) -> RequeueAction {
        RequeueAction::After(time_until_next_schedule(&self.cron_job, schedule, self.now))
    }
}

/// Outcome of looking at a CronJob's schedule.
enum Due {
    /// No Job is started until the CronJob changes.
    Never,
    /// A Job is started at a later time.
    Later(CronSchedule),
    /// A Job is started for this scheduled time.
    Now(CronSchedule, Timestamp),
}
