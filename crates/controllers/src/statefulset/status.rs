//! StatefulSet status: counts of pods, and the completion of a rolling update.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};

use super::identity::{desired_replicas, has_strategy, min_ready_seconds, revision_of};
use crate::{
    pod_availability::{is_pod_ready, pod_phase, time_until_available},
    pod_view::PodView,
};

/// Whether the server has the pod; pods that are still to be created have no phase.
pub(super) fn is_created(pod: &PodView) -> bool {
    !pod_phase(pod).is_empty()
}

/// Whether the pod's deletion has begun.
pub(super) fn is_terminating(pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether the pod runs and is ready.
pub(super) fn is_running_and_ready(pod: &PodView) -> bool {
    pod_phase(pod) == "Running" && is_pod_ready(pod)
}

/// Whether the pod has been ready for the set's `minReadySeconds`.
pub(super) fn is_available(set: &StatefulSet, pod: &PodView, now: Timestamp) -> bool {
    time_until_available(pod, min_ready_seconds(set), now) == Some(Duration::ZERO)
}

/// Whether the pod is not available or is being deleted.
pub(super) fn is_unavailable(set: &StatefulSet, pod: &PodView, now: Timestamp) -> bool {
    !is_available(set, pod, now) || is_terminating(pod)
}

/// Counts pods into `status`, whose revisions are set.
pub(super) fn count_replicas<'a>(
    set: &StatefulSet,
    status: &mut StatefulSetStatus,
    pods: impl IntoIterator<Item = &'a PodView>,
    now: Timestamp,
) {
    let (mut replicas, mut ready, mut available, mut current, mut updated) = (0, 0, 0, 0, 0);
    for pod in pods {
        replicas += i32::from(is_created(pod));
        if is_running_and_ready(pod) {
            ready += 1;
            available += i32::from(is_available(set, pod, now));
        }
        if is_created(pod) && !is_terminating(pod) {
            let is_at = |revision: &Option<String>| revision.as_deref() == Some(revision_of(pod));
            current += i32::from(is_at(&status.current_revision));
            updated += i32::from(is_at(&status.update_revision));
        }
    }
    status.replicas = replicas;
    status.ready_replicas = Some(ready);
    status.available_replicas = Some(available);
    status.current_replicas = Some(current);
    status.updated_replicas = Some(updated);
}

/// Makes the update revision the current one if all replicas are updated and ready.
pub(super) fn complete_rolling_update(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let counts = [status.updated_replicas, status.ready_replicas, Some(status.replicas)];
    let all_updated = counts.iter().all(|count| count.unwrap_or(0) == desired_replicas(set));
    if has_strategy(set, "RollingUpdate") && all_updated {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
}

/// Whether the status must be written: it observed a newer generation, or a count or revision differs.
pub(super) fn is_status_outdated(set: &StatefulSet, status: &StatefulSetStatus) -> bool {
    let old = set.status.clone().unwrap_or_default();
    let key = |status: &StatefulSetStatus| {
        let counts =
            [status.current_replicas, status.ready_replicas, status.updated_replicas, status.available_replicas];
        let revisions = [status.current_revision.clone(), status.update_revision.clone()];
        (status.replicas, counts.map(|count| count.unwrap_or(0)), revisions.map(Option::unwrap_or_default))
    };
    status.observed_generation.unwrap_or(0) > old.observed_generation.unwrap_or(0) || key(status) != key(&old)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set() -> StatefulSet {
        serde_json::from_value(
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 2, "minReadySeconds": 10, "selector": {},
            "template": {}, "updateStrategy": {"type": "RollingUpdate"}}}),
        )
        .unwrap()
    }

    fn pod(revision: &str, status: Value, deleting: bool) -> PodView {
        let deletion = deleting.then_some("2030-01-01T00:00:00Z");
        serde_json::from_value(json!({"metadata": {"labels": {"controller-revision-hash": revision},
            "deletionTimestamp": deletion}, "status": status}))
        .unwrap()
    }

    fn ready(since: &str) -> Value {
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]})
    }

    fn count(pods: &[PodView]) -> StatefulSetStatus {
        let mut status = StatefulSetStatus {
            current_revision: Some("a".into()),
            update_revision: Some("b".into()),
            observed_generation: Some(2),
            ..Default::default()
        };
        count_replicas(&set(), &mut status, pods, "2030-01-01T00:00:20Z".parse().unwrap());
        status
    }

    #[test]
    fn replicas_are_counted_by_state_and_revision() {
        let status = count(&[
            pod("a", ready("2030-01-01T00:00:10Z"), false),
            pod("b", ready("2030-01-01T00:00:11Z"), false),
            pod("b", json!({"phase": "Pending"}), true),
            pod("b", json!({}), false),
        ]);
        assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(2), Some(1)));
        assert_eq!((status.current_replicas, status.updated_replicas), (Some(1), Some(1)));
    }

    #[test]
    fn update_completes_when_all_replicas_are_updated_and_ready() {
        let mut status =
            count(&[pod("b", ready("2030-01-01T00:00:00Z"), false), pod("b", json!({"phase": "Running"}), false)]);
        complete_rolling_update(&set(), &mut status);
        assert_eq!(status.current_revision.as_deref(), Some("a"));
        let updated = pod("b", ready("2030-01-01T00:00:00Z"), false);
        let mut status = count(&[updated.clone(), updated]);
        complete_rolling_update(&set(), &mut status);
        assert_eq!((status.current_revision.as_deref(), status.current_replicas), (Some("b"), Some(2)));
    }

    #[test]
    fn status_is_written_only_when_something_changed() {
        let mut set = set();
        let status = count(&[]);
        assert!(is_status_outdated(&set, &status));
        set.status = Some(status.clone());
        assert!(!is_status_outdated(&set, &status));
        assert!(is_status_outdated(&set, &StatefulSetStatus { ready_replicas: Some(1), ..status }));
    }
}
