//! Objects as they will be once the API server has what the scheduler decided.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{CachedView, SharedInformer};

/// An informer's objects, some of them replaced by assumed versions.
///
/// An assumed version counts as long as the informer has the version that it was made from.
pub struct AssumeCache<K> {
    informer: SharedInformer<K>,
    assumed: Mutex<HashMap<String, (Arc<K>, String)>>,
}

impl<K: CachedView> AssumeCache<K> {
    /// Creates a cache without assumed versions.
    pub fn new(informer: SharedInformer<K>) -> Self {
        Self { informer, assumed: Mutex::default() }
    }

    /// The objects without assumed versions.
    pub fn informer(&self) -> &SharedInformer<K> {
        &self.informer
    }

    /// Returns an object, the assumed version before the informer's.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.informer.get(namespace, name).map(|known| self.newest(known))
    }

    /// Returns the assumed version of an object of the informer, if there is one.
    pub fn newest(&self, known: Arc<K>) -> Arc<K> {
        let mut assumed = self.lock();
        if assumed.is_empty() {
            return known;
        }
        let key = key(known.as_ref());
        match assumed.get(&key) {
            Some((object, base)) if base == known.resource_version() => object.clone(),
            Some(_) => {
                assumed.remove(&key);
                known
            }
            None => known,
        }
    }

    /// Assumes a version that was made from the informer's current one.
    pub fn assume(&self, object: Arc<K>) {
        let base = object.resource_version().to_owned();
        self.lock().insert(key(object.as_ref()), (object, base));
    }

    /// Returns to the informer's version.
    pub fn restore(&self, object: &K) {
        self.lock().remove(&key(object));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Arc<K>, String)>> {
        self.assumed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key<K: CachedView>(object: &K) -> String {
    let (namespace, name) = object.namespace_and_name();
    format!("{namespace}/{name}")
}
