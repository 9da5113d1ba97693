//! A bounded cache whose entries have a TTL each; the least recently used entries are evicted first.

use std::{
    hash::Hash,
    time::{Duration, Instant},
};

use moka::{Expiry, policy::EvictionPolicy, sync::Cache};

/// Values by key, each with its TTL.
pub struct TtlCache<K, V>(Cache<K, (V, Duration)>);

/// Expires an entry after the TTL that it was written with.
struct EntryTtl;

impl<K, V> Expiry<K, (V, Duration)> for EntryTtl {
    fn expire_after_create(&self, _: &K, (_, ttl): &(V, Duration), _: Instant) -> Option<Duration> {
        Some(*ttl)
    }

    fn expire_after_update(
        &self,
        _: &K,
        (_, ttl): &(V, Duration),
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(*ttl)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static, V: Clone + Send + Sync + 'static> TtlCache<K, V> {
    /// A cache of at most `capacity` entries.
    pub fn with_capacity(capacity: u64) -> Self {
        let cache = Cache::builder().max_capacity(capacity).eviction_policy(EvictionPolicy::lru());
        Self(cache.expire_after(EntryTtl).build())
    }

    /// Returns the value of a key, unless it has expired.
    pub fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|(value, _)| value)
    }

    /// Returns the value of a key; adds one with `ttl` if there is none.
    pub fn get_or_insert_with(&self, key: K, ttl: Duration, value: impl FnOnce() -> V) -> V {
        self.0.get_with(key, || (value(), ttl)).0
    }

    /// Sets the value of a key for `ttl`; a zero TTL removes it.
    pub fn put(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            self.0.invalidate(&key);
        } else {
            self.0.insert(key, (value, ttl));
        }
    }

    /// The number of entries.
    pub fn count_entries(&self) -> u64 {
        self.0.run_pending_tasks();
        self.0.entry_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_is_evicted() {
        let (cache, long) = (TtlCache::with_capacity(64), Duration::from_secs(60));
        for at in 0..64 {
            cache.put(at, at, long);
        }
        assert_eq!((cache.count_entries(), cache.get(&0)), (64, Some(0)));
        cache.put(64, 7, long);
        assert_eq!((cache.count_entries(), cache.get(&0), cache.get(&1), cache.get(&64)), (64, Some(0), None, Some(7)));
    }

    #[test]
    fn expired_entries_are_not_returned() {
        let cache = TtlCache::with_capacity(64);
        cache.put("never", 1, Duration::ZERO);
        cache.put("over", 2, Duration::from_nanos(1));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!((cache.get(&"never"), cache.get(&"over")), (None, None));
        assert_eq!(cache.get_or_insert_with("over", Duration::from_secs(60), || 3), 3);
    }
}
