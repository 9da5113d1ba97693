//! Conditions and status of an autoscaler.

use jiff::Timestamp;
use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Sets a condition; its transition time changes with its status.
pub(super) fn set_condition(
    status: &mut HorizontalPodAutoscalerStatus,
    (type_, value): (&str, bool),
    reason: &str,
    message: impl Into<String>,
) {
    let conditions = status.conditions.get_or_insert_default();
    let value = if value { "True" } else { "False" };
    let at = conditions.iter().position(|condition| condition.type_ == type_);
    let since = at.and_then(|at| conditions.get(at)).filter(|condition| condition.status == value);
    let condition = HorizontalPodAutoscalerCondition {
        type_: type_.into(),
        status: value.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: since.map_or(Some(Time(Timestamp::now())), |old| old.last_transition_time.clone()),
    };
    match at.and_then(|at| conditions.get_mut(at)) {
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}

/// Removes a condition.
pub(super) fn remove_condition(status: &mut HorizontalPodAutoscalerStatus, type_: &str) {
    status.conditions.iter_mut().for_each(|conditions| conditions.retain(|condition| condition.type_ != type_));
}

/// Replaces the counts and metrics, keeping the conditions.
pub(super) fn set_counts(
    status: &mut HorizontalPodAutoscalerStatus,
    current: i32,
    desired: i32,
    metrics: Option<Vec<MetricStatus>>,
) {
    *status = HorizontalPodAutoscalerStatus {
        current_replicas: (current != 0).then_some(current),
        desired_replicas: desired,
        last_scale_time: status.last_scale_time.take(),
        current_metrics: metrics,
        conditions: status.conditions.take(),
        observed_generation: None,
    };
}

/// Whether two statuses are equal, with absent values as empty ones.
pub(super) fn is_same_status(old: &HorizontalPodAutoscalerStatus, new: &HorizontalPodAutoscalerStatus) -> bool {
    let lists = |status: &HorizontalPodAutoscalerStatus| {
        (status.conditions.clone().unwrap_or_default(), status.current_metrics.clone().unwrap_or_default())
    };
    let counts = |status: &HorizontalPodAutoscalerStatus| {
        (status.current_replicas.unwrap_or(0), status.desired_replicas, status.observed_generation)
    };
    counts(old) == counts(new) && old.last_scale_time == new.last_scale_time && lists(old) == lists(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transition_time_changes_with_the_status() {
        let mut status = HorizontalPodAutoscalerStatus::default();
        set_condition(&mut status, ("AbleToScale", true), "A", "a");
        let old = Some(Time(Timestamp::UNIX_EPOCH));
        status.conditions.as_mut().unwrap()[0].last_transition_time = old.clone();
        set_condition(&mut status, ("AbleToScale", true), "B", "b");
        assert_eq!(status.conditions.as_ref().unwrap()[0].last_transition_time, old);
        set_condition(&mut status, ("AbleToScale", false), "B", "b");
        assert_ne!(status.conditions.as_ref().unwrap()[0].last_transition_time, old);
        assert_eq!(status.conditions.as_ref().unwrap().len(), 1);
        remove_condition(&mut status, "AbleToScale");
        assert!(is_same_status(&status, &HorizontalPodAutoscalerStatus::default()));
    }
}
