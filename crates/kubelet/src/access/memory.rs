//! Remembers answers for a while, and not more than so many.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How much is remembered.
const SIZE: usize = 1024;

/// What was answered, and until when that counts.
pub struct Memory<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone, V: Clone> Memory<K, V> {
    /// What was answered, if it still counts.
    pub fn get(&self, key: &K) -> Option<V> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, until)| *until > Instant::now()).map(|(value, _)| value.clone())
    }

    /// Remembers an answer.
    pub fn put(&self, key: K, value: V, lifetime: Duration) {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SIZE {
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() >= SIZE
            && let Some(victim) = known.keys().next().cloned()
        {
            known.remove(&victim);
        }
        known.insert(key, (value, now + lifetime));
    }
}
