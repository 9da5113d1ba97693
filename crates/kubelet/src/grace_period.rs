//! Grace periods of pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

/// Minimum grace period.
pub const MIN_GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Returns the grace period of the pod's spec.
pub fn pod_grace_period(pod: &Pod) -> Duration {
    let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    Duration::from_secs(seconds.max(0) as u64).max(MIN_GRACE_PERIOD)
}

/// Returns the grace period of the deletion, or else of the spec.
pub fn deletion_grace_period(pod: &Pod) -> Duration {
    match pod.metadata.deletion_grace_period_seconds {
        Some(seconds) => Duration::from_secs(seconds.max(0) as u64).max(MIN_GRACE_PERIOD),
        None => pod_grace_period(pod),
    }
}
