//! A bounded cache of webhook responses with a TTL; the least recently used entries are evicted first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Responses by request.
pub struct ResponseCache<T> {
    /// Maximum number of entries.
    capacity: usize,
    state: Mutex<CacheState<T>>,
}

struct CacheState<T> {
    entries: HashMap<String, CacheEntry<T>>,
    /// The keys in the order of their last use.
    order: BTreeMap<u64, String>,
    uses: u64,
}

struct CacheEntry<T> {
    response: T,
    expires_at: Instant,
    last_used: u64,
}

impl<T: Clone> ResponseCache<T> {
    /// A cache of at most `capacity` responses.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { capacity, state: Mutex::new(CacheState { entries: HashMap::new(), order: BTreeMap::new(), uses: 0 }) }
    }

    /// Returns the cached response, unless it has expired.
    pub fn get(&self, key: &str) -> Option<T> {
        let mut state = self.lock_state();
        if state.entries.get(key)?.expires_at <= Instant::now() {
            state.remove_entry(key);
            return None;
        }
        state.uses += 1;
        let now = state.uses;
        let entry = state.entries.get_mut(key)?;
        let (response, before) = (entry.response.clone(), std::mem::replace(&mut entry.last_used, now));
        if let Some(key) = state.order.remove(&before) {
            state.order.insert(now, key);
        }
        Some(response)
    }

    /// Caches a response for `ttl`; a zero TTL caches nothing.
    pub fn put(&self, key: String, response: T, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let mut state = self.lock_state();
        state.remove_entry(&key);
        if state.entries.len() >= self.capacity
            && let Some((_, oldest)) = state.order.pop_first()
        {
            state.entries.remove(&oldest);
        }
        state.uses += 1;
        let last_used = state.uses;
        state.order.insert(last_used, key.clone());
        state.entries.insert(key, CacheEntry { response, expires_at: Instant::now() + ttl, last_used });
    }

    fn lock_state(&self) -> MutexGuard<'_, CacheState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> CacheState<T> {
    fn remove_entry(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.order.remove(&entry.last_used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64;

    #[test]
    fn least_recently_used_entry_is_evicted() {
        let cache = ResponseCache::with_capacity(CAPACITY);
        let long = Duration::from_secs(60);
        for at in 0..CAPACITY {
            cache.put(at.to_string(), at, long);
        }
        assert_eq!(cache.get("0"), Some(0));
        cache.put("new".into(), 7, long);
        assert_eq!((cache.get("0"), cache.get("1"), cache.get("new")), (Some(0), None, Some(7)));
        assert_eq!(cache.lock_state().entries.len(), CAPACITY);
    }

    #[test]
    fn expired_entries_are_not_returned() {
        let cache = ResponseCache::with_capacity(CAPACITY);
        cache.put("never".into(), 1, Duration::ZERO);
        cache.put("over".into(), 2, Duration::from_nanos(1));
        assert_eq!((cache.get("never"), cache.get("over")), (None, None));
        assert!(cache.lock_state().order.is_empty());
    }
}
