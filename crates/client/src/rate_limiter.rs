//! Per-item exponential back-off of the work queue: 5 ms doubling up to 1000 s, as in client-go.

use std::{collections::HashMap, hash::Hash, time::Duration};

const BASE: Duration = Duration::from_millis(5);
const MAX: Duration = Duration::from_secs(1000);

/// Failure counts per key since it was last forgotten.
pub(crate) struct ItemBackoff<K> {
    failures: HashMap<K, u32>,
}

impl<K> Default for ItemBackoff<K> {
    fn default() -> Self {
        Self { failures: HashMap::new() }
    }
}

impl<K: Eq + Hash> ItemBackoff<K> {
    /// Counts a failure and returns its delay.
    pub(crate) fn next_delay(&mut self, key: K) -> Duration {
        let failures = self.failures.entry(key).or_default();
        let factor = 1u32.checked_shl(*failures).unwrap_or(u32::MAX);
        *failures = (*failures).saturating_add(1).min(31);
        BASE.saturating_mul(factor).min(MAX)
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }
}
