//! Deployment status: replica counts and the conditions Available, Progressing and ReplicaFailure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;

use super::limits::{available_replicas, desired_replicas, max_unavailable, total_replicas};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const COMPLETE: &str = "NewReplicaSetAvailable";
const PAUSED: &str = "DeploymentPaused";

/// Calculates counts and the condition Available; other conditions are kept.
pub(super) fn calculate_status(
    deployment: &Deployment,
    old: &[ReplicaSet],
    new: Option<&ReplicaSet>,
    now: Timestamp,
) -> DeploymentStatus {
    let all = || old.iter().chain(new);
    let sum = |count: fn(&ReplicaSet) -> i32| -> i32 { all().map(count).sum() };
    let available = available_replicas(all());
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: Some(sum(actual_replicas)),
        updated_replicas: Some(new.map_or(0, actual_replicas)),
        ready_replicas: Some(sum(|rs| rs.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0))),
        available_replicas: Some(available),
        unavailable_replicas: Some((total_replicas(all()) - available).max(0)),
        terminating_replicas: terminating_replicas(all()),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let condition = match available >= desired_replicas(deployment) - max_unavailable(deployment) {
        true => {
            new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
        }
        false => {
            let message = "Deployment does not have minimum availability.";
            new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
        }
    };
    set_condition(&mut status, condition);
    status
}

/// Returns the ReplicaSet's `status.replicas`.
pub(super) fn actual_replicas(replica_set: &ReplicaSet) -> i32 {
    replica_set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Returns the terminating replicas; `None` unless every observed ReplicaSet reports them.
fn terminating_replicas<'a>(all: impl Iterator<Item = &'a ReplicaSet>) -> Option<i32> {
    let counted = all.filter_map(|rs| rs.status.as_ref()).filter(|status| status.observed_generation.unwrap_or(0) > 0);
    counted.map(|status| status.terminating_replicas).sum()
}

/// Updates the condition Progressing: complete, progressing, or past its deadline.
pub(super) fn update_progress_condition(
    deployment: &Deployment,
    new: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let Some(deadline) = progress_deadline(deployment) else { return remove_condition(status, PROGRESSING) };
    let current = find_condition(deployment.status.as_ref(), PROGRESSING).cloned();
    let reason = current.as_ref().and_then(|condition| condition.reason.as_deref());
    if status.replicas == status.updated_replicas && reason == Some(COMPLETE) {
        return;
    }
    let subject = match new {
        Some(new) => format!("ReplicaSet {:?}", new.name_any()),
        None => format!("Deployment {:?}", deployment.name_any()),
    };
    if is_complete(deployment, Some(status)) {
        let message = format!("{subject} has successfully progressed.");
        set_condition(status, new_condition(PROGRESSING, "True", COMPLETE, &message, now));
    } else if has_progressed(deployment, status) {
        let mut condition =
            new_condition(PROGRESSING, "True", "ReplicaSetUpdated", &format!("{subject} is progressing."), now);
        if let Some(current) = current.filter(|current| current.status == "True") {
            condition.last_transition_time = current.last_transition_time;
        }
        // Replaced even if the reason is equal: the deadline counts from the update time.
        remove_condition(status, PROGRESSING);
        set_condition(status, condition);
    } else if is_timed_out(status, deadline, now) {
        let message = format!("{subject} has timed out progressing.");
        set_condition(status, new_condition(PROGRESSING, "False", TIMED_OUT, &message, now));
    }
}

/// Copies the condition ReplicaFailure from the ReplicaSets, the newest first.
pub(super) fn update_failure_condition(old: &[ReplicaSet], new: Option<&ReplicaSet>, status: &mut DeploymentStatus) {
    let conditions =
        |rs: &ReplicaSet| rs.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let failure = new.into_iter().chain(old).flat_map(conditions).find(|condition| condition.type_ == REPLICA_FAILURE);
    let Some(failure) = failure else { return remove_condition(status, REPLICA_FAILURE) };
    let condition = DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time,
    };
    set_condition(status, condition);
}

/// Records a pause or resume in Progressing, so that paused time does not count towards the deadline.
pub(super) fn check_paused_conditions(deployment: &mut Deployment, now: Timestamp) {
    if progress_deadline(deployment).is_none() {
        return;
    }
    let reason =
        find_condition(deployment.status.as_ref(), PROGRESSING).and_then(|condition| condition.reason.as_deref());
    let was_paused = reason == Some(PAUSED);
    let is_paused = deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or(false);
    if reason == Some(TIMED_OUT) || was_paused == is_paused {
        return;
    }
    let (reason, message) = match is_paused {
        true => (PAUSED, "Deployment is paused"),
        false => ("DeploymentResumed", "Deployment is resumed"),
    };
    set_progressing_condition(deployment, "Unknown", reason, message, now);
}

/// Sets the condition Progressing if the Deployment has a progress deadline.
pub(super) fn set_progressing_condition(
    deployment: &mut Deployment,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    if progress_deadline(deployment).is_some() {
        set_condition(
            deployment.status.get_or_insert_default(),
            new_condition(PROGRESSING, value, reason, message, now),
        );
    }
}

/// Whether the condition Progressing is absent.
pub(super) fn lacks_progressing_condition(deployment: &Deployment) -> bool {
    find_condition(deployment.status.as_ref(), PROGRESSING).is_none()
}

/// Returns when to check the progress deadline; `None` if no rollout is in progress.
pub(super) fn next_progress_check(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let deadline = progress_deadline(deployment)?;
    let current = find_condition(Some(status), PROGRESSING)?;
    if is_complete(deployment, Some(status)) || current.reason.as_deref() == Some(TIMED_OUT) {
        return None;
    }
    let passed = now.duration_since(current.last_update_time.as_ref()?.0);
    let left = deadline.saturating_sub(Duration::try_from(passed).unwrap_or_default());
    // Timestamps have whole seconds, so a check exactly at the deadline would be early.
    Some(left + Duration::from_secs(1))
}

/// Whether all replicas are updated and available.
pub(super) fn is_complete(deployment: &Deployment, status: Option<&DeploymentStatus>) -> bool {
    let wanted = desired_replicas(deployment);
    status.is_some_and(|status| {
        let counts = [status.updated_replicas, status.replicas, status.available_replicas];
        counts.iter().all(|count| count.unwrap_or(0) == wanted)
            && status.observed_generation >= deployment.metadata.generation
    })
}

fn has_progressed(deployment: &Deployment, new: &DeploymentStatus) -> bool {
    let counts = |status: &DeploymentStatus| {
        let updated = status.updated_replicas.unwrap_or(0);
        let old = status.replicas.unwrap_or(0) - updated;
        (updated, old, status.ready_replicas.unwrap_or(0), status.available_replicas.unwrap_or(0))
    };
    let before = counts(&deployment.status.clone().unwrap_or_default());
    let now = counts(new);
    now.0 > before.0 || now.1 < before.1 || now.2 > before.2 || now.3 > before.3
}

fn is_timed_out(status: &DeploymentStatus, deadline: Duration, now: Timestamp) -> bool {
    let Some(current) = find_condition(Some(status), PROGRESSING) else { return false };
    match current.reason.as_deref() {
        Some(COMPLETE) => false,
        Some(TIMED_OUT) => true,
        _ => {
            let since = current.last_update_time.as_ref().map_or(now, |time| time.0);
            Duration::try_from(now.duration_since(since)).unwrap_or_default() > deadline
        }
    }
}

fn progress_deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
    Some(Duration::from_secs(seconds.unsigned_abs().into()))
}

fn new_condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

fn find_condition<'a>(status: Option<&'a DeploymentStatus>, type_: &str) -> Option<&'a DeploymentCondition> {
    status?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition; one with equal status and reason is kept.
fn set_condition(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(current) =
        find_condition(Some(status), &condition.type_).filter(|current| current.status == condition.status)
    {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time.clone();
    }
    remove_condition(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove_condition(status: &mut DeploymentStatus, type_: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != type_);
    }
}

/// Whether two statuses are equal, with absent counts as zero. An absent `terminatingReplicas` is unknown.
pub(super) fn is_same_status(a: &DeploymentStatus, b: &DeploymentStatus) -> bool {
    let counts = |s: &DeploymentStatus| {
        let all = [s.replicas, s.updated_replicas, s.ready_replicas, s.available_replicas, s.unavailable_replicas];
        (all.map(|count| count.unwrap_or(0)), s.terminating_replicas, s.observed_generation, s.collision_count)
    };
    counts(a) == counts(b) && a.conditions.as_deref().unwrap_or(&[]) == b.conditions.as_deref().unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn deployment() -> Deployment {
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        let spec = json!({"replicas": 2, "progressDeadlineSeconds": 600, "selector": {}, "template": {}, "strategy": strategy});
        serde_json::from_value(json!({"metadata": {"name": "web", "generation": 1}, "spec": spec})).unwrap()
    }

    fn replica_set(available: i32) -> ReplicaSet {
        let status = json!({"replicas": 2, "readyReplicas": available, "availableReplicas": available, "observedGeneration": 1, "terminatingReplicas": 0});
        serde_json::from_value(
            json!({"metadata": {"name": "web-1"}, "spec": {"replicas": 2, "selector": {}}, "status": status}),
        )
        .unwrap()
    }

    /// Syncs with `available` pods and returns `(available, progressing reason, message)`.
    fn step(deployment: &mut Deployment, available: i32, now: i64) -> (String, String, String) {
        let new = replica_set(available);
        let mut status = calculate_status(deployment, &[], Some(&new), at(now));
        update_progress_condition(deployment, Some(&new), &mut status, at(now));
        update_failure_condition(&[], Some(&new), &mut status);
        let available = find_condition(Some(&status), AVAILABLE).unwrap().status.clone();
        let progressing = find_condition(Some(&status), PROGRESSING).cloned();
        deployment.status = Some(status);
        let (reason, message) = progressing.map(|c| (c.reason.unwrap(), c.message.unwrap())).unwrap_or_default();
        (available, reason, message)
    }

    #[test]
    fn rollout_progresses_and_completes() {
        let mut deployment = deployment();
        let message = "ReplicaSet \"web-1\" is progressing.".to_owned();
        assert_eq!(step(&mut deployment, 0, 0), ("False".into(), "ReplicaSetUpdated".into(), message));
        assert_eq!(
            next_progress_check(&deployment, deployment.status.as_ref().unwrap(), at(100)),
            Some(Duration::from_secs(501))
        );
        let message = "ReplicaSet \"web-1\" has successfully progressed.".to_owned();
        assert_eq!(step(&mut deployment, 2, 5), ("True".into(), COMPLETE.into(), message));
        assert_eq!(next_progress_check(&deployment, deployment.status.as_ref().unwrap(), at(100)), None);
        assert_eq!(step(&mut deployment, 1, 2000).1, COMPLETE);
    }

    #[test]
    fn stuck_rollout_times_out_and_recovers() {
        let mut deployment = deployment();
        step(&mut deployment, 0, 0);
        assert_eq!(step(&mut deployment, 0, 600).1, "ReplicaSetUpdated");
        assert_eq!(step(&mut deployment, 0, 601).1, TIMED_OUT);
        assert_eq!(step(&mut deployment, 2, 700).1, COMPLETE);
    }

    #[test]
    fn pause_is_recorded_once() {
        let mut deployment = deployment();
        step(&mut deployment, 0, 0);
        deployment.spec.as_mut().unwrap().paused = Some(true);
        check_paused_conditions(&mut deployment, at(1));
        let paused = deployment.status.clone();
        check_paused_conditions(&mut deployment, at(2));
        assert_eq!(deployment.status, paused);
        deployment.spec.as_mut().unwrap().paused = None;
        check_paused_conditions(&mut deployment, at(3));
        assert_eq!(
            find_condition(deployment.status.as_ref(), PROGRESSING).unwrap().reason.as_deref(),
            Some("DeploymentResumed")
        );
    }
}
