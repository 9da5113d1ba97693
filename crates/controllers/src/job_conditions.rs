//! Predicates of finished Jobs, for the controllers that watch Jobs.

use k8s_openapi::api::batch::v1::{Job, JobCondition};

/// Returns the condition `Complete` or `Failed` of a finished Job.
pub(crate) fn finished_condition(job: &Job) -> Option<&JobCondition> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True")
}

/// Whether the Job has completed or failed.
pub(crate) fn is_job_finished(job: &Job) -> bool {
    finished_condition(job).is_some()
}
