//! The work queue of every loop: keys wait once, are worked on once at a time, and come back later after a failure.

use std::{hash::Hash, time::Duration};

/// A deduplicating, rate-limited queue. Cheap to clone.
///
/// A key added while it waits is not added again; added while it is being worked on, it comes again after `done`.
pub struct Queue<K> {
    _contract_only: std::marker::PhantomData<K>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { _contract_only: std::marker::PhantomData }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// An empty queue with upstream's back-off: 5 ms doubling up to 1000 s per key.
    pub fn new() -> Self {
        Self { _contract_only: std::marker::PhantomData }
    }

    /// Adds a key now.
    pub fn add(&self, _key: K) {}

    /// Adds a key after a delay.
    pub fn add_after(&self, _key: K, _delay: Duration) {}

    /// Adds a key after its back-off, which grows with every call until [`Queue::forget`].
    pub fn retry(&self, _key: K) {}

    /// Resets a key's back-off.
    pub fn forget(&self, _key: &K) {}

    /// The next key to work on; it must be given back with [`Queue::done`].
    pub async fn next(&self) -> K {
        std::future::pending().await
    }

    /// Says that the work on a key ended.
    pub fn done(&self, _key: &K) {}

    /// How many keys wait now.
    pub fn len(&self) -> usize {
        0
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}
