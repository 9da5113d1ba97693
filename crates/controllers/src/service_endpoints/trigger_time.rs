//! The time of the change that an update of endpoints reflects, published as
//! `endpoints.kubernetes.io/last-change-trigger-time`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt;

use super::TRIGGER_TIME_ANNOTATION;
use crate::{object_key::ObjectKey, pod_view::PodView};

/// Times that the last sync of each service observed.
#[derive(Default)]
pub(crate) struct TriggerTimeTracker {
    services: Mutex<HashMap<ObjectKey, ObservedTimes>>,
}

#[derive(Clone, Default)]
struct ObservedTimes {
    service: Option<Timestamp>,
    pods: HashMap<String, Timestamp>,
}

impl TriggerTimeTracker {
    /// Records the current times and returns the earliest that changed since the last sync, or the service's creation
    /// on its first sync.
    pub(crate) fn trigger_time(&self, key: &ObjectKey, service: &Service, pods: &[Arc<PodView>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let readiness = |pod: &Arc<PodView>| Some((pod.name_any(), readiness_time(pod)?));
        let now = ObservedTimes { service: created, pods: pods.iter().filter_map(readiness).collect() };
        let Some(before) = self.lock_services().insert(key.clone(), now.clone()) else { return created };
        let changed = now.pods.iter().filter(|(name, time)| before.pods.get(*name).is_none_or(|before| *time > before));
        let changed = changed.map(|(_, time)| *time);
        changed.chain(now.service.filter(|_| now.service > before.service)).min()
    }

    /// Forgets a deleted service.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock_services().remove(key);
    }

    fn lock_services(&self) -> MutexGuard<'_, HashMap<ObjectKey, ObservedTimes>> {
        self.services.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the last transition of the pod's `Ready` condition.
fn readiness_time(pod: &PodView) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|Time(time)| *time)
}

/// Sets or removes the annotation.
pub(crate) fn annotate_trigger_time(annotations: &mut BTreeMap<String, String>, trigger_time: Option<Timestamp>) {
    match trigger_time {
        Some(time) => annotations.insert(TRIGGER_TIME_ANNOTATION.into(), time.to_string()),
        None => annotations.remove(TRIGGER_TIME_ANNOTATION),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready_at: &str) -> Arc<PodView> {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": ready_at});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": [ready]}})).unwrap(),
        )
    }

    #[test]
    fn earliest_change_since_the_last_sync_counts() {
        let tracker = TriggerTimeTracker::default();
        let service =
            serde_json::from_value(json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})).unwrap();
        let key = ObjectKey::new("ns", "web");
        let check = |pods: &[Arc<PodView>], expected: Option<&str>| {
            let time = tracker.trigger_time(&key, &service, pods);
            assert_eq!(time.map(|time| time.to_string()).as_deref(), expected);
        };
        check(&[pod("a", "2026-01-01T00:00:05Z")], Some("2026-01-01T00:00:00Z"));
        check(&[pod("a", "2026-01-01T00:00:05Z")], None);
        let later = [pod("a", "2026-01-01T00:00:09Z"), pod("b", "2026-01-01T00:00:08Z")];
        check(&later, Some("2026-01-01T00:00:08Z"));
        check(&later[..1], None);
        tracker.forget(&key);
        check(&later, Some("2026-01-01T00:00:00Z"));
    }
}
