//! Consistency of a controller's caches with its own writes.
//!
//! A controller that has written an object and reads it from its cache must wait until the cache has the write, or it
//! decides again on the state before it. The store remembers the newest resource version that was written per
//! controller key and resource, and compares it with the newest that the informer has seen.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::time::Instant;

use crate::{
    expectations::EXPECTATIONS_TIMEOUT,
    informer::{CachedObject, SharedInformer},
};

/// Time after which a key that is not ready is checked again. The event of its write usually queues it before.
pub const CONSISTENCY_RECHECK: Duration = Duration::from_millis(100);

/// Writes that the caches may not have yet, by controller key. A write that is never observed (its object was deleted
/// while the watch was interrupted) is forgotten after [`EXPECTATIONS_TIMEOUT`].
#[derive(Default)]
pub struct ConsistencyStore {
    writes: Mutex<HashMap<String, HashMap<TypeId, PendingWrite>>>,
}

/// The newest write to one resource.
struct PendingWrite {
    resource_version: u64,
    latest_observed: Box<dyn Fn() -> u64 + Send>,
    written_at: Instant,
}

impl PendingWrite {
    fn is_observed(&self) -> bool {
        (self.latest_observed)() >= self.resource_version || self.written_at.elapsed() > EXPECTATIONS_TIMEOUT
    }
}

impl ConsistencyStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `key` wrote an object of `informer`'s resource, and the metadata that the server returned.
    pub fn record_write<K: CachedObject>(&self, key: &str, informer: &SharedInformer<K>, written: &ObjectMeta) {
        let Some(resource_version) = written.resource_version.as_deref().and_then(|text| text.parse().ok()) else {
            return;
        };
        let informer = informer.clone();
        let write = PendingWrite {
            resource_version,
            latest_observed: Box::new(move || informer.latest_resource_version()),
            written_at: Instant::now(),
        };
        let mut writes = self.lock_writes();
        let of_key = writes.entry(key.into()).or_default();
        if of_key.get(&TypeId::of::<K>()).is_none_or(|other| other.resource_version < resource_version) {
            of_key.insert(TypeId::of::<K>(), write);
        }
    }

    /// Whether the caches have all writes of `key`.
    pub fn is_ready(&self, key: &str) -> bool {
        let mut writes = self.lock_writes();
        let ready = writes.get(key).is_none_or(|of_key| of_key.values().all(PendingWrite::is_observed));
        if ready {
            writes.remove(key);
        }
        ready
    }

    /// Drops the writes of a deleted object.
    pub fn forget(&self, key: &str) {
        self.lock_writes().remove(key);
    }

    fn lock_writes(&self) -> MutexGuard<'_, HashMap<String, HashMap<TypeId, PendingWrite>>> {
        self.writes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn written(version: u64) -> ObjectMeta {
        ObjectMeta { resource_version: Some(version.to_string()), ..Default::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn key_is_ready_after_its_newest_write_is_observed() {
        let (store, informer) = (ConsistencyStore::new(), SharedInformer::<ConfigMap>::new_idle());
        store.record_write("a", &informer, &written(7));
        store.record_write("a", &informer, &written(5));
        assert!(!store.is_ready("a") && store.is_ready("b"));
        let observe = |version: &str| {
            let mut object = ConfigMap::default();
            object.metadata.name = Some("x".into());
            object.metadata.resource_version = Some(version.into());
            informer.handle_event(kube::runtime::watcher::Event::Apply(object), &mut Vec::new());
        };
        observe("6");
        assert!(!store.is_ready("a"));
        observe("8");
        assert!(store.is_ready("a"));
        store.record_write("a", &informer, &written(9));
        assert!(!store.is_ready("a"));
        tokio::time::advance(EXPECTATIONS_TIMEOUT + Duration::from_secs(1)).await;
        assert!(store.is_ready("a"));
    }
}
