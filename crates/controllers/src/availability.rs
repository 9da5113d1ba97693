//! When a pod counts: as active, as ready, and as available (ready for long enough).

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// Whether the pod runs or may yet run.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Whether all of the pod's containers have ended for good.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The pod's phase; empty when nobody has reported one.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

/// Whether the pod's readiness is reported as true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Since when the pod is ready, if it is.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// How long until a ready pod has been ready for `min_ready_seconds`: zero when it has, `None` when it is not ready.
pub(crate) fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    ready_condition(pod)?;
    if min_ready_seconds <= 0 {
        return Some(Duration::ZERO);
    }
    let needed = Duration::from_secs(min_ready_seconds.unsigned_abs().into());
    let Some(since) = ready_since(pod) else { return Some(needed) };
    Some(needed.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default()))
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "True")
}
