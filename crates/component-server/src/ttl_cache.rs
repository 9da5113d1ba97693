//! A bounded cache whose entries expire.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Maximum number of entries.
const MAX_ENTRIES: usize = 1024;

/// Values with their expiry.
pub struct TtlCache<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> TtlCache<K, V> {
    /// Returns an unexpired value.
    pub fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    /// Inserts a value.
    pub fn insert(&self, key: K, value: V, lifetime: Duration) {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_ENTRIES {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= MAX_ENTRIES
            && let Some(victim) = known.keys().next().cloned()
        {
            known.remove(&victim);
        }
        known.insert(key, (value, now + lifetime));
    }
}
