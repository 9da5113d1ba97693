//! How long a failing key waits: 5 ms doubling up to 1000 s, as client-go's default rate limiter does per item.

use std::{collections::HashMap, hash::Hash, time::Duration};

const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1000);

/// The number of failures of each key since it was last forgotten.
pub(crate) struct Backoff<K> {
    failures: HashMap<K, u32>,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self { failures: HashMap::new() }
    }
}

impl<K: Eq + Hash> Backoff<K> {
    /// Counts a failure and says how long to wait for it.
    pub(crate) fn next(&mut self, key: K) -> Duration {
        let failures = self.failures.entry(key).or_default();
        let factor = 1u32.checked_shl(*failures).unwrap_or(u32::MAX);
        *failures = (*failures).saturating_add(1).min(31);
        BASE.saturating_mul(factor).min(MAX)
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }
}
