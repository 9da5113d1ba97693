//! Counts finished pods exactly once: a pod's uid enters `status.uncountedTerminatedPods`, its finalizer is removed, and
//! the counters are incremented when the finalizer is gone.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};

use super::{
    pods::{completion_index, is_pod_failed, pod_uid, valid_completion_index},
    spec::{ensure_condition, index_count, is_indexed, new_condition, true_condition},
    state::{FAILURE_TARGET, JobState, SUCCESS_CRITERIA_MET, count_i32, failed_condition, total_i32},
};
use crate::{pod_availability::pod_phase, pod_view::PodView};

/// Maximum number of pods that a sync counts, which bounds the size of the status.
const MAX_UNCOUNTED_PODS: usize = 500;

/// Finalizers to remove, once the status is written.
pub(super) struct TrackingPlan {
    /// Whether the status changed.
    pub(super) needs_flush: bool,
    /// Pods whose finalizer can be removed.
    pub(super) removable: Vec<Arc<PodView>>,
    /// Uids of all pods that have the finalizer.
    pub(super) with_finalizer: HashSet<String>,
    /// Whether there are more pods to count than a sync does.
    pub(super) reached_maximum: bool,
}

/// Adds finished pods and interim conditions to the status.
pub(super) fn plan_tracking(state: &mut JobState, needs_flush: bool) -> TrackingPlan {
    if is_indexed(&state.spec) {
        // New indexes are counted in order.
        state.pods.sort_by_key(|pod| completion_index(pod));
    }
    let tracked: Vec<Arc<PodView>> = state.pods.iter().filter(|pod| state.is_tracked(pod)).cloned().collect();
    let with_finalizer: HashSet<String> = tracked.iter().map(|pod| pod_uid(pod).to_owned()).collect();
    let cleaned = count_pods_without_finalizer(&mut state.status, &with_finalizer);
    let mut plan = TrackingPlan {
        needs_flush: needs_flush | cleaned,
        removable: Vec::new(),
        with_finalizer,
        reached_maximum: false,
    };
    let mut new_indexes = Vec::new();
    for pod in tracked {
        let is_failed = is_pod_failed(&pod, &state.spec);
        if !can_remove_finalizer(state, &pod, is_failed) {
            continue;
        }
        plan.needs_flush |= count_pod(state, &pod, is_failed, &mut new_indexes);
        plan.removable.push(pod);
        if new_indexes.len() + uncounted_count(&state.status) >= MAX_UNCOUNTED_PODS {
            plan.reached_maximum = true;
            break;
        }
    }
    if is_indexed(&state.spec) {
        plan.needs_flush |= update_indexes(state, new_indexes);
    }
    plan.needs_flush |= add_interim_condition(state);
    plan
}

/// Whether the pod need not be kept: the Job ends, the pod succeeded, or it failed and its failure count has been passed
/// on to a replacement.
fn can_remove_finalizer(state: &JobState, pod: &PodView, is_failed: bool) -> bool {
    if state.job.metadata.deletion_timestamp.is_some() || state.finished.is_some() || pod_phase(pod) == "Succeeded" {
        return true;
    }
    let delayed = completion_index(pod).and_then(|index| state.delayed_deletions.get(&index));
    is_failed && delayed.is_none_or(|delayed| pod_uid(delayed) != pod_uid(pod))
}

/// Adds a pod to the uncounted pods or the new indexes; returns whether the status changed.
fn count_pod(state: &mut JobState, pod: &PodView, is_failed: bool, new_indexes: &mut Vec<i64>) -> bool {
    let (indexed, index) = (is_indexed(&state.spec), valid_completion_index(pod, index_count(&state.spec)));
    let uid = pod_uid(pod);
    let ends_in_failure = state.finished.as_ref().is_some_and(|condition| condition.type_ != SUCCESS_CRITERIA_MET);
    if pod_phase(pod) == "Succeeded" && !state.uncounted_failed.contains(uid) {
        if indexed {
            let new = index.filter(|index| !state.counted_indexes.contains(*index));
            new_indexes.extend(new);
            return new.is_some();
        }
        if !state.uncounted_succeeded.contains(uid) {
            uncounted_of(&mut state.status).succeeded.get_or_insert_default().push(uid.into());
            return true;
        }
    } else if is_failed || ends_in_failure {
        let is_new = !state.uncounted_failed.contains(uid) && (!indexed || index.is_some());
        if is_new && state.failure_action(pod).counts() {
            uncounted_of(&mut state.status).failed.get_or_insert_default().push(uid.into());
            return true;
        }
    }
    false
}

fn update_indexes(state: &mut JobState, new_indexes: Vec<i64>) -> bool {
    state.succeeded_indexes = state.succeeded_indexes.with_indexes(new_indexes);
    let completed = Some(state.succeeded_indexes.to_string()).filter(|indexes| !indexes.is_empty());
    let failed = state.failed_indexes.as_ref().map(ToString::to_string);
    let changed = state.status.completed_indexes != completed || state.status.failed_indexes != failed;
    state.status.succeeded = non_zero(total_i32(&state.succeeded_indexes));
    (state.status.completed_indexes, state.status.failed_indexes) = (completed, failed);
    changed
}

/// Adds `FailureTarget` or `SuccessCriteriaMet` and turns the condition to set at the end into `Failed` or `Complete`.
fn add_interim_condition(state: &mut JobState) -> bool {
    let Some(interim) = state.finished.clone() else { return false };
    let conditions = state.status.conditions.get_or_insert_default();
    match interim.type_.as_str() {
        FAILURE_TARGET => {
            state.finished = Some(failed_condition(&interim, state.now));
            conditions.push(interim);
            true
        }
        SUCCESS_CRITERIA_MET => {
            let (reason, message) =
                (interim.reason.clone().unwrap_or_default(), interim.message.clone().unwrap_or_default());
            state.finished = Some(new_condition("Complete", &reason, &message, state.now));
            let is_new = true_condition(conditions, SUCCESS_CRITERIA_MET).is_none();
            if is_new {
                conditions.push(interim);
            }
            is_new
        }
        _ => false,
    }
}

/// Moves the uncounted pods whose finalizer is gone to the counters; returns whether the status changed.
pub(super) fn count_pods_without_finalizer(status: &mut JobStatus, with_finalizer: &HashSet<String>) -> bool {
    let count = |uids: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let listed = uids.take().unwrap_or_default();
        let before = listed.len();
        let left: Vec<String> = listed.into_iter().filter(|uid| with_finalizer.contains(uid)).collect();
        let counted = before - left.len();
        *counter = non_zero(counter.unwrap_or(0) + count_i32(counted));
        *uids = (!left.is_empty()).then_some(left);
        counted > 0
    };
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let succeeded = count(&mut uncounted.succeeded, &mut status.succeeded);
    let failed = count(&mut uncounted.failed, &mut status.failed);
    succeeded || failed
}

/// Sets the final condition unless pods are still uncounted or terminating; returns it if the Job is finished.
pub(super) fn finish_job(state: &mut JobState, reached_maximum: bool) -> Option<JobCondition> {
    let finished = state.finished.clone()?;
    if reached_maximum || uncounted_count(&state.status) > 0 || state.terminating > 0 {
        return None;
    }
    if finished.type_ == "Complete" {
        state.status.completion_time = finished.last_transition_time.clone();
    }
    ensure_condition(state.status.conditions.get_or_insert_default(), finished.clone());
    Some(finished)
}

/// Represents zero as absent, as the API does.
pub(super) fn non_zero(count: i32) -> Option<i32> {
    (count != 0).then_some(count)
}

fn uncounted_of(status: &mut JobStatus) -> &mut UncountedTerminatedPods {
    status.uncounted_terminated_pods.get_or_insert_default()
}

fn uncounted_count(status: &JobStatus) -> usize {
    let lists = status.uncounted_terminated_pods.iter().flat_map(|uncounted| [&uncounted.succeeded, &uncounted.failed]);
    lists.flatten().map(Vec::len).sum()
}
