//! Objects that the controller wrote and that the informer may not have yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{SharedInformer, informer::CachedObject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object_key::ObjectKey;

/// The newest version of every object: the informer's, or the one that this controller wrote since.
pub(super) struct WrittenObjects<K> {
    informer: SharedInformer<K>,
    written: Mutex<HashMap<ObjectKey, Arc<K>>>,
}

impl<K: CachedObject> WrittenObjects<K> {
    pub(super) fn new(informer: SharedInformer<K>) -> Self {
        Self { informer, written: Mutex::default() }
    }

    pub(super) fn informer(&self) -> &SharedInformer<K> {
        &self.informer
    }

    /// Returns the newest version of an object.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let Some(cached) = self.informer.get(&key.namespace, &key.name) else {
            // Objects are only updated, so one that is not cached was deleted.
            self.lock().remove(key);
            return None;
        };
        Some(self.newest(cached))
    }

    /// Returns the version that was written since the cached one, if any.
    pub(super) fn newest(&self, cached: Arc<K>) -> Arc<K> {
        let key = ObjectKey::from_object(cached.as_ref());
        let mut written = self.lock();
        match written.get(&key) {
            Some(newer) if is_newer(newer.meta(), cached.meta()) => newer.clone(),
            Some(_) => {
                written.remove(&key);
                cached
            }
            None => cached,
        }
    }

    /// Remembers what the server returned for a write.
    pub(super) fn record(&self, object: K) -> Arc<K> {
        let object = Arc::new(object);
        self.lock().insert(ObjectKey::from_object(object.as_ref()), object.clone());
        object
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<K>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_newer(written: &ObjectMeta, cached: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    written.uid == cached.uid && version(written) > version(cached)
}
