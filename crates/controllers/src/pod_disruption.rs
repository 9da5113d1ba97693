//! The pod condition `DisruptionTarget`, set before a controller deletes a pod.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::PodCondition, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use crate::pod_view::PodView;

/// Returns the condition to write; `None` if the pod has an equal one.
pub(crate) fn disruption_target(pod: &PodView, reason: &str, message: &str, now: Timestamp) -> Option<PodCondition> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let old = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget");
    let old = old.filter(|old| old.status == "True");
    if old.is_some_and(|old| old.reason.as_deref() == Some(reason) && old.message.as_deref() == Some(message)) {
        return None;
    }
    let since = old.and_then(|old| old.last_transition_time.clone());
    Some(PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        observed_generation: pod.metadata.generation,
        ..Default::default()
    })
}

/// Builds a strategic merge patch of the status of this pod and no other of its name.
pub(crate) fn status_patch(pod: &PodView, status: Value) -> Value {
    json!({"metadata": {"uid": pod.metadata.uid}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_written_once_and_keeps_its_transition_time() {
        let pod = |conditions: Value| -> PodView {
            serde_json::from_value(json!({"metadata": {"generation": 3}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        let new = disruption_target(&pod(json!([])), "A", "a", Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(new.observed_generation, Some(3));
        assert_eq!(disruption_target(&pod(json!([new])), "A", "a", Timestamp::MAX), None);
        let other = disruption_target(&pod(json!([new])), "B", "b", Timestamp::MAX).unwrap();
        assert_eq!(other.last_transition_time, Some(Time(Timestamp::UNIX_EPOCH)));
    }
}
