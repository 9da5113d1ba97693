//! Tracks the generations of the EndpointSlices that a controller wrote, to recognise a stale cache and foreign changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use client::{ResourceEvent, SharedInformer};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::{SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL};
use crate::object_key::ObjectKey;

/// Index of EndpointSlices by manager, namespace and service.
const BY_SERVICE: &str = "managed-service";

/// The expected state of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedSlice {
    Generation(i64),
    Deleted,
}

/// Expected slices by service and uid, for the slices of one manager.
pub(crate) struct EndpointSliceTracker {
    /// Value of the label `endpointslice.kubernetes.io/managed-by`.
    manager: &'static str,
    services: Mutex<HashMap<ObjectKey, HashMap<String, ExpectedSlice>>>,
}

impl EndpointSliceTracker {
    /// Tracks the slices of a manager and indexes them.
    pub(crate) fn new(manager: &'static str, slices: &SharedInformer<EndpointSlice>) -> Self {
        slices.add_index(BY_SERVICE, |slice| {
            let manager = slice_label(slice, SLICE_MANAGED_BY_LABEL);
            service_key(slice).map(|key| format!("{manager} {key}")).into_iter().collect()
        });
        Self::detached(manager)
    }

    /// Tracks the slices of a manager.
    fn detached(manager: &'static str) -> Self {
        Self { manager, services: Mutex::default() }
    }

    /// Returns the manager's slices of a service.
    pub(crate) fn slices_of_service(
        &self,
        slices: &SharedInformer<EndpointSlice>,
        key: &ObjectKey,
    ) -> Vec<Arc<EndpointSlice>> {
        slices.by_index(BY_SERVICE, &format!("{} {key}", self.manager))
    }

    /// Returns the services to sync after a slice event: those whose slices were not changed by this manager.
    pub(crate) fn services_to_sync(&self, event: &ResourceEvent<EndpointSlice>) -> Vec<ObjectKey> {
        let slice = event.object();
        let needs_sync = match event {
            ResourceEvent::Added(_) => self.is_managed(slice) && self.should_sync(slice),
            ResourceEvent::Updated { old, new } => {
                let keys = [service_key(new), service_key(old)];
                if keys[0] != keys[1] {
                    return keys.into_iter().flatten().collect();
                }
                self.is_managed(old) != self.is_managed(new) || (self.is_managed(new) && self.should_sync(new))
            }
            ResourceEvent::Deleted(_) => self.is_managed(slice) && self.is_unexpected_deletion(slice),
        };
        service_key(slice).filter(|_| needs_sync).into_iter().collect()
    }

    /// Whether the cached slices of a service are older than what this manager wrote.
    pub(crate) fn is_stale(&self, key: &ObjectKey, slices: &[Arc<EndpointSlice>]) -> bool {
        let services = self.lock_services();
        let Some(expected) = services.get(key) else { return false };
        let cached: HashMap<&str, i64> = slices.iter().map(|slice| (slice_uid(slice), generation(slice))).collect();
        expected.iter().any(|(uid, expected)| match (expected, cached.get(uid.as_str())) {
            (ExpectedSlice::Deleted, cached) => cached.is_some(),
            (ExpectedSlice::Generation(expected), cached) => cached.is_none_or(|cached| cached < expected),
        })
    }

    /// Whether the slice is tracked.
    pub(crate) fn is_tracked(&self, slice: &EndpointSlice) -> bool {
        let key = service_key(slice);
        let services = self.lock_services();
        key.and_then(|key| services.get(&key)).is_some_and(|slices| slices.contains_key(slice_uid(slice)))
    }

    /// Records a written slice.
    pub(crate) fn track(&self, slice: &EndpointSlice) {
        self.expect(slice, ExpectedSlice::Generation(generation(slice)));
    }

    /// Records a deleted slice.
    pub(crate) fn expect_deletion(&self, slice: &EndpointSlice) {
        self.expect(slice, ExpectedSlice::Deleted);
    }

    /// Forgets a service.
    pub(crate) fn forget(&self, key: &ObjectKey) {
        self.lock_services().remove(key);
    }

    fn expect(&self, slice: &EndpointSlice, expected: ExpectedSlice) {
        if let Some(key) = service_key(slice) {
            self.lock_services().entry(key).or_default().insert(slice_uid(slice).into(), expected);
        }
    }

    fn is_managed(&self, slice: &EndpointSlice) -> bool {
        slice_label(slice, SLICE_MANAGED_BY_LABEL) == self.manager
    }

    fn should_sync(&self, slice: &EndpointSlice) -> bool {
        let services = self.lock_services();
        let expected = service_key(slice).and_then(|key| services.get(&key)?.get(slice_uid(slice)).copied());
        match expected {
            None | Some(ExpectedSlice::Deleted) => true,
            Some(ExpectedSlice::Generation(expected)) => generation(slice) > expected,
        }
    }

    fn is_unexpected_deletion(&self, slice: &EndpointSlice) -> bool {
        let mut services = self.lock_services();
        let tracked = service_key(slice).and_then(|key| services.get_mut(&key)?.remove(slice_uid(slice)));
        matches!(tracked, Some(ExpectedSlice::Generation(_)))
    }

    fn lock_services(&self) -> MutexGuard<'_, HashMap<ObjectKey, HashMap<String, ExpectedSlice>>> {
        self.services.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the service that a slice's label names.
pub(crate) fn service_key(slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice_label(slice, SERVICE_NAME_LABEL);
    (!name.is_empty()).then(|| ObjectKey::new(slice.metadata.namespace.as_deref().unwrap_or_default(), name))
}

fn slice_label<'a>(slice: &'a EndpointSlice, label: &str) -> &'a str {
    slice.metadata.labels.as_ref().and_then(|labels| labels.get(label)).map(String::as_str).unwrap_or_default()
}

fn slice_uid(slice: &EndpointSlice) -> &str {
    slice.metadata.uid.as_deref().unwrap_or_default()
}

fn generation(slice: &EndpointSlice) -> i64 {
    slice.metadata.generation.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(uid: &str, generation: i64) -> Arc<EndpointSlice> {
        let labels = json!({SERVICE_NAME_LABEL: "web", SLICE_MANAGED_BY_LABEL: "me"});
        let metadata = json!({"namespace": "ns", "uid": uid, "generation": generation, "labels": labels});
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []})).unwrap())
    }

    #[test]
    fn older_missing_and_deleted_slices_make_the_cache_stale() {
        let (tracker, key) = (EndpointSliceTracker::detached("me"), ObjectKey::new("ns", "web"));
        assert!(!tracker.is_stale(&key, &[slice("a", 1)]));
        tracker.track(&slice("a", 2));
        assert!(tracker.is_stale(&key, &[slice("a", 1)]) && tracker.is_stale(&key, &[]));
        assert!(!tracker.is_stale(&key, &[slice("a", 2), slice("b", 1)]));
        tracker.expect_deletion(&slice("a", 2));
        assert!(tracker.is_stale(&key, &[slice("a", 2)]) && !tracker.is_stale(&key, &[]));
    }

    #[test]
    fn only_foreign_changes_are_synced() {
        let tracker = EndpointSliceTracker::detached("me");
        tracker.track(&slice("a", 2));
        let updated = |generation| ResourceEvent::Updated { old: slice("a", 1), new: slice("a", generation) };
        assert!(tracker.services_to_sync(&updated(2)).is_empty());
        assert_eq!(tracker.services_to_sync(&updated(3)), [ObjectKey::new("ns", "web")]);
        assert_eq!(tracker.services_to_sync(&ResourceEvent::Added(slice("b", 1))).len(), 1);
        assert_eq!(tracker.services_to_sync(&ResourceEvent::Deleted(slice("a", 2))).len(), 1);
        tracker.expect_deletion(&slice("a", 2));
        assert!(tracker.services_to_sync(&ResourceEvent::Deleted(slice("a", 2))).is_empty());
    }
}
