//! Decides which pods to create or delete, as upstream's `manageJob`.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use super::{
    backoff::{finished_time, remaining_time_after_failures},
    pods::{absolute_index_failure_count, completion_index},
    spec::{index_count, is_indexed, is_suspended, only_replaces_failed_pods},
    state::JobState,
};
use crate::{pod_availability::is_pod_terminal, pod_ranking::sort_active_pods, pod_view::PodView};

/// Maximum number of pods created or deleted per sync.
const MAX_PODS_PER_SYNC: usize = 500;

/// Pods to create or delete in a sync; never both.
#[derive(Debug)]
pub(super) enum PodPlan {
    /// The pods are as desired.
    Keep,
    /// Pods to delete.
    Delete(Vec<Arc<PodView>>),
    /// Pods to create, with their indexes.
    Create(Vec<Option<i64>>),
    /// Pods are to be created after their back-off.
    Wait(Duration),
}

/// Plans the pods of a Job that is neither finished nor being deleted.
pub(super) fn plan_pods(state: &JobState) -> PodPlan {
    if is_suspended(&state.spec) {
        return PodPlan::Delete(active_pods_for_removal(state, state.active_pods.len()));
    }
    let desired = desired_active_pods(state);
    let mut surplus = active_pods_for_removal(state, usize::try_from(state.active - desired).unwrap_or(0));
    surplus.truncate(MAX_PODS_PER_SYNC);
    if !surplus.is_empty() {
        return PodPlan::Delete(surplus);
    }
    let terminating = if only_replaces_failed_pods(&state.spec) { state.terminating } else { 0 };
    match usize::try_from(desired - terminating - state.active) {
        Ok(missing) if missing > 0 => plan_creations(state, missing.min(MAX_PODS_PER_SYNC)),
        _ => PodPlan::Keep,
    }
}

/// Returns the number of pods that should be active. A Job without completions keeps the pods it has after the first
/// success.
fn desired_active_pods(state: &JobState) -> i32 {
    let parallelism = state.spec.parallelism.unwrap_or(1);
    match state.spec.completions {
        None if state.succeeded > 0 => state.active,
        None => parallelism,
        Some(completions) => (completions - state.succeeded).min(parallelism).max(0),
    }
}

fn plan_creations(state: &JobState, missing: usize) -> PodPlan {
    if state.spec.backoff_limit_per_index.is_none() {
        let remaining = state.backoff.remaining_time(state.now);
        if !remaining.is_zero() {
            return PodPlan::Wait(remaining);
        }
    }
    if !is_indexed(&state.spec) {
        return PodPlan::Create(vec![None; missing]);
    }
    let pending = first_pending_indexes(state, missing);
    let waits: Vec<(i64, Duration)> = pending.iter().map(|index| (*index, index_backoff(state, *index))).collect();
    let ready: Vec<Option<i64>> =
        waits.iter().filter(|(_, wait)| wait.is_zero()).map(|(index, _)| Some(*index)).collect();
    match waits.iter().map(|(_, wait)| *wait).min() {
        None => PodPlan::Keep,
        Some(wait) if ready.is_empty() => PodPlan::Wait(wait),
        Some(_) => PodPlan::Create(ready),
    }
}

/// Returns the time until the pod of an index may be created again.
fn index_backoff(state: &JobState, index: i64) -> Duration {
    let Some(failed) = state.delayed_deletions.get(&index) else { return Duration::ZERO };
    let failures = u32::try_from(absolute_index_failure_count(failed)).unwrap_or(0).saturating_add(1);
    remaining_time_after_failures(failures, finished_time(failed), state.now)
}

/// Returns indexes without a pod that is active, succeeded, failed for good, or terminating where that counts.
fn first_pending_indexes(state: &JobState, count: usize) -> Vec<i64> {
    let active = state.active_pods.iter().filter_map(|pod| completion_index(pod));
    let mut taken = state.succeeded_indexes.with_indexes(active);
    if only_replaces_failed_pods(&state.spec) {
        let terminating =
            state.pods.iter().filter(|pod| !is_pod_terminal(pod) && pod.metadata.deletion_timestamp.is_some());
        taken = taken.with_indexes(terminating.filter_map(|pod| completion_index(pod)));
    }
    if let Some(failed) = &state.failed_indexes {
        taken = taken.merge(failed);
    }
    taken.first_missing(count, index_count(&state.spec))
}

/// Returns the pods to remove: duplicates and invalid indexes, and then as many more as `at_least` asks for.
fn active_pods_for_removal(state: &JobState, at_least: usize) -> Vec<Arc<PodView>> {
    let mut removed = match is_indexed(&state.spec) {
        true => pods_with_surplus_index(&state.active_pods, index_count(&state.spec)),
        false => Vec::new(),
    };
    if removed.len() < at_least {
        let chosen: HashSet<*const PodView> = removed.iter().map(Arc::as_ptr).collect();
        let mut left: Vec<_> =
            state.active_pods.iter().filter(|pod| !chosen.contains(&Arc::as_ptr(pod))).cloned().collect();
        sort_active_pods(&mut left);
        left.truncate(at_least - removed.len());
        removed.extend(left);
    }
    removed
}

/// Returns the pods without a valid index, and of each index all pods but the one to keep.
fn pods_with_surplus_index(active: &[Arc<PodView>], completions: i32) -> Vec<Arc<PodView>> {
    let mut by_index: BTreeMap<Option<i64>, Vec<Arc<PodView>>> = BTreeMap::new();
    for pod in active {
        by_index.entry(completion_index(pod)).or_default().push(pod.clone());
    }
    let mut surplus = Vec::new();
    for (index, mut pods) in by_index {
        if index.is_some_and(|index| index < completions.into()) {
            sort_active_pods(&mut pods);
            pods.pop();
        }
        surplus.extend(pods);
    }
    surplus
}
