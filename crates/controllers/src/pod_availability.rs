//! Pod predicates: active, terminal, ready, available.

use std::time::Duration;

use jiff::Timestamp;

use crate::pod_view::{PodConditionView, PodView};

/// Whether the pod is neither terminal nor being deleted.
pub(crate) fn is_pod_active(pod: &PodView) -> bool {
    !is_pod_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether the pod's phase is `Succeeded` or `Failed`.
pub(crate) fn is_pod_terminal(pod: &PodView) -> bool {
    matches!(pod_phase(pod), "Succeeded" | "Failed")
}

/// Returns the pod's phase; empty if none is reported.
pub(crate) fn pod_phase(pod: &PodView) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

/// Whether the pod's `Ready` condition is true.
pub(crate) fn is_pod_ready(pod: &PodView) -> bool {
    ready_condition(pod).is_some()
}

/// Returns the time since which the pod is ready.
pub(crate) fn pod_ready_since(pod: &PodView) -> Option<Timestamp> {
    ready_condition(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// Returns the time until the pod has been ready for `min_ready_seconds`; `None` if it is not ready.
pub(crate) fn time_until_available(pod: &PodView, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    ready_condition(pod)?;
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let needed = Duration::from_secs(min_ready_seconds.unsigned_abs().into());
    let Some(since) = pod_ready_since(pod) else { return Some(needed) };
    Some(needed.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default()))
}

fn ready_condition(pod: &PodView) -> Option<&PodConditionView> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")
}
