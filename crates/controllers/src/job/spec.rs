//! Predicates and conditions of Jobs.

use jiff::Timestamp;
use k8s_openapi::{
    api::batch::v1::{Job, JobCondition, JobSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// `spec.managedBy` of this controller.
const JOB_CONTROLLER_NAME: &str = "kubernetes.io/job-controller";

/// Whether each pod of the Job has a completion index.
pub(super) fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Whether the completion mode is one that this controller knows.
pub(super) fn has_known_completion_mode(spec: &JobSpec) -> bool {
    matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed"))
}

/// Whether `spec.suspend` is true.
pub(super) fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

/// Whether another controller manages the Job.
pub(super) fn is_managed_externally(job: &Job) -> bool {
    let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    managed_by.is_some_and(|controller| controller != JOB_CONTROLLER_NAME)
}

/// Whether pods are replaced only after they have failed, not while they are terminating.
pub(super) fn only_replaces_failed_pods(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

/// Returns `spec.completions` of an Indexed Job.
pub(super) fn index_count(spec: &JobSpec) -> i32 {
    spec.completions.unwrap_or(0)
}

/// Builds a condition whose status is `True`.
pub(super) fn new_condition(type_: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: type_.into(),
        status: "True".into(),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
        reason: Some(reason.into()),
        message: Some(message.into()),
    }
}

/// Returns a condition of the type if its status is `True`.
pub(super) fn true_condition<'a>(conditions: &'a [JobCondition], type_: &str) -> Option<&'a JobCondition> {
    conditions.iter().find(|condition| condition.type_ == type_).filter(|condition| condition.status == "True")
}

/// Sets a condition and returns whether the list changed. A condition that is absent is not added as `False`.
pub(super) fn ensure_condition(conditions: &mut Vec<JobCondition>, condition: JobCondition) -> bool {
    match conditions.iter_mut().find(|existing| existing.type_ == condition.type_) {
        Some(existing) => {
            let same = existing.status == condition.status
                && existing.reason == condition.reason
                && existing.message == condition.message;
            if !same {
                *existing = condition;
            }
            !same
        }
        None if condition.status != "False" => {
            conditions.push(condition);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_condition_is_only_set_on_an_existing_one() {
        let mut conditions = Vec::new();
        let suspended = |status: &str| JobCondition {
            status: status.into(),
            ..new_condition("Suspended", "r", "m", Timestamp::UNIX_EPOCH)
        };
        assert!(!ensure_condition(&mut conditions, suspended("False")));
        assert!(ensure_condition(&mut conditions, suspended("True")));
        assert!(!ensure_condition(&mut conditions, suspended("True")));
        assert!(ensure_condition(&mut conditions, suspended("False")));
        assert_eq!(conditions.len(), 1);
        assert!(true_condition(&conditions, "Suspended").is_none());
    }
}
