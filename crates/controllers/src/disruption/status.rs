//! PodDisruptionBudget status: pods that are healthy, disrupted pods, and the condition DisruptionAllowed.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use kube::ResourceExt;

use crate::{
    int_or_percent::{RoundingMode, scaled_value},
    pod_availability::is_pod_ready,
    pod_view::PodView,
};

/// Time within which an evicted pod is expected to be marked for deletion.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Pods that were evicted and are not yet marked for deletion.
#[derive(Debug, Default)]
pub(super) struct DisruptedPods {
    /// Eviction times by pod name.
    pub(super) pods: BTreeMap<String, Time>,
    /// Time when the first of them expires.
    pub(super) recheck_at: Option<Timestamp>,
    /// Pods that should have been deleted by now.
    pub(super) not_deleted: Vec<Arc<PodView>>,
}

/// Whether the budget depends on the scale of the pods' controllers.
pub(super) fn needs_expected_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Returns the number of pods that must be healthy.
pub(super) fn desired_healthy(spec: &PodDisruptionBudgetSpec, expected: i32) -> i32 {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(value), _) => (expected - scaled_value(Some(value), expected, RoundingMode::Up)).max(0),
        (None, value) => scaled_value(value.as_ref(), expected, RoundingMode::Up),
    }
}

/// Keeps the disrupted pods that may still be deleted.
pub(super) fn find_disrupted_pods(
    pods: &[Arc<PodView>],
    known: Option<&BTreeMap<String, Time>>,
    now: Timestamp,
) -> DisruptedPods {
    let mut result = DisruptedPods::default();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.name_any();
        let Some(disrupted_at) = known.and_then(|known| known.get(&name)) else { continue };
        let deadline = disrupted_at.0.saturating_add(DELETION_TIMEOUT).unwrap_or(now);
        if deadline < now {
            result.not_deleted.push(pod.clone());
        } else {
            result.recheck_at = Some(result.recheck_at.map_or(deadline, |earlier| earlier.min(deadline)));
            result.pods.insert(name, disrupted_at.clone());
        }
    }
    result
}

/// Counts the pods that are ready and neither being deleted nor about to be.
pub(super) fn count_healthy_pods(pods: &[Arc<PodView>], disrupted: &BTreeMap<String, Time>, now: Timestamp) -> i32 {
    let is_disrupted = |pod: &PodView| {
        let at = disrupted.get(pod.metadata.name.as_deref().unwrap_or(""));
        at.is_some_and(|at| now.duration_since(at.0) < DELETION_TIMEOUT)
    };
    let healthy =
        pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none() && !is_disrupted(pod) && is_pod_ready(pod));
    i32::try_from(healthy.count()).unwrap_or(i32::MAX)
}

/// Numbers of pods of a budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct PodCounts {
    pub(super) healthy: i32,
    pub(super) desired_healthy: i32,
    pub(super) expected: i32,
}

/// Calculates the status; `None` if it is up to date.
pub(super) fn calculate_status(
    budget: &PodDisruptionBudget,
    counts: PodCounts,
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    // A budget without pods allows nothing, so that its first pods are protected before the next sync.
    let surplus = if counts.expected > 0 { (counts.healthy - counts.desired_healthy).max(0) } else { 0 };
    let numbers = (Some(counts.healthy), Some(counts.desired_healthy), Some(counts.expected), Some(surplus));
    let is_current = (old.current_healthy, old.desired_healthy, old.expected_pods, old.disruptions_allowed) == numbers
        && old.disrupted_pods.clone().unwrap_or_default() == disrupted
        && old.observed_generation == budget.metadata.generation
        && is_condition_current(old.conditions.as_deref().unwrap_or_default(), surplus);
    if is_current {
        return None;
    }
    let mut status = PodDisruptionBudgetStatus {
        current_healthy: numbers.0,
        desired_healthy: numbers.1,
        expected_pods: numbers.2,
        disruptions_allowed: numbers.3,
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: old.conditions,
    };
    let (value, reason) = disruption_allowed(surplus);
    set_condition(&mut status, value, reason, String::new(), now);
    Some(status)
}

/// Returns the status that allows no disruption after a failed sync.
pub(super) fn fail_safe_status(
    budget: &PodDisruptionBudget,
    message: String,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    status.current_healthy.get_or_insert(0);
    status.desired_healthy.get_or_insert(0);
    status.expected_pods.get_or_insert(0);
    set_condition(&mut status, "False", "SyncFailed", message, now);
    status
}

fn disruption_allowed(allowed: i32) -> (&'static str, &'static str) {
    if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") }
}

fn is_condition_current(conditions: &[Condition], allowed: i32) -> bool {
    let condition = conditions.iter().find(|condition| condition.type_ == DISRUPTION_ALLOWED);
    condition
        .is_some_and(|condition| (condition.status.as_str(), condition.reason.as_str()) == disruption_allowed(allowed))
}

/// Sets DisruptionAllowed; its transition time changes with its status.
fn set_condition(status: &mut PodDisruptionBudgetStatus, value: &str, reason: &str, message: String, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter_mut().find(|condition| condition.type_ == DISRUPTION_ALLOWED);
    let since = old.as_ref().filter(|old| old.status == value).map(|old| old.last_transition_time.clone());
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.into(),
        status: value.into(),
        reason: reason.into(),
        message,
        observed_generation: status.observed_generation,
        last_transition_time: since.unwrap_or(Time(now)),
    };
    match old {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2030-01-01T00:10:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn pod(name: &str, ready: bool) -> Arc<PodView> {
        let ready = if ready { "True" } else { "False" };
        let object =
            json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn desired_healthy_rounds_up() {
        let check = |spec: Value, expected, desired| {
            let spec: PodDisruptionBudgetSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(desired_healthy(&spec, expected), desired, "{spec:?}");
        };
        check(json!({"maxUnavailable": "50%"}), 5, 2);
        check(json!({"maxUnavailable": 7}), 5, 0);
        check(json!({"minAvailable": "50%"}), 5, 3);
        check(json!({"minAvailable": 2}), 5, 2);
        check(json!({}), 5, 0);
    }

    #[test]
    fn disrupted_pods_expire() {
        let time = |text: &str| Time(text.parse().unwrap());
        let known = [
            ("a".to_owned(), time("2030-01-01T00:09:00Z")),
            ("b".to_owned(), time("2030-01-01T00:07:00Z")),
            ("gone".to_owned(), time("2030-01-01T00:09:30Z")),
        ];
        let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
        let found = find_disrupted_pods(&pods, Some(&known.into()), now());
        assert_eq!(found.pods.keys().collect::<Vec<_>>(), ["a"]);
        assert_eq!(found.recheck_at, Some("2030-01-01T00:11:00Z".parse().unwrap()));
        assert_eq!(found.not_deleted[0].name_any(), "b");
        assert_eq!(count_healthy_pods(&pods, &found.pods, now()), 2);
    }

    #[test]
    fn status_is_written_only_when_it_changes() {
        let mut budget: PodDisruptionBudget =
            serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": {}})).unwrap();
        let counts = PodCounts { healthy: 3, desired_healthy: 2, expected: 3 };
        let status = calculate_status(&budget, counts, BTreeMap::new(), now()).unwrap();
        let condition = &status.conditions.as_ref().unwrap()[0];
        assert_eq!((condition.reason.as_str(), condition.observed_generation), ("SufficientPods", Some(2)));
        assert_eq!(status.disruptions_allowed, Some(1));
        budget.status = Some(status);
        assert_eq!(calculate_status(&budget, counts, BTreeMap::new(), now()), None);
        let none = PodCounts { expected: 0, ..counts };
        let status = calculate_status(&budget, none, BTreeMap::new(), now()).unwrap();
        assert_eq!((status.disruptions_allowed, status.conditions.unwrap()[0].status.as_str()), (Some(0), "False"));
        let failed = fail_safe_status(&budget, "no".into(), now());
        assert_eq!((failed.disruptions_allowed, failed.conditions.unwrap()[0].message.as_str()), (Some(0), "no"));
    }
}
