//! Per-item exponential back-off of the work queue.

use std::{collections::HashMap, hash::Hash, time::Duration};

/// Bounds of the back-off: the first delay, which doubles up to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffBounds {
    /// Delay after the first failure.
    pub base: Duration,
    /// The greatest delay.
    pub max: Duration,
}

impl BackoffBounds {
    /// Those of client-go's default rate limiter: 5 ms doubling up to 1000 s.
    pub const DEFAULT: Self = Self { base: Duration::from_millis(5), max: Duration::from_secs(1000) };
}

/// Failure counts per key since it was last forgotten.
pub(crate) struct ItemBackoff<K> {
    failures: HashMap<K, u32>,
    bounds: BackoffBounds,
}

impl<K: Eq + Hash> ItemBackoff<K> {
    pub(crate) fn new(bounds: BackoffBounds) -> Self {
        Self { failures: HashMap::new(), bounds }
    }

    /// Counts a failure and returns its delay.
    pub(crate) fn next_delay(&mut self, key: K) -> Duration {
        let failures = self.failures.entry(key).or_default();
        let factor = 1u32.checked_shl(*failures).unwrap_or(u32::MAX);
        *failures = (*failures).saturating_add(1).min(31);
        self.bounds.base.saturating_mul(factor).min(self.bounds.max)
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }
}
