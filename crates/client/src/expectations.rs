//! Controller expectations: creations and deletions that were requested and not yet observed by the informer.
//!
//! A controller that counts objects in its cache must wait until its own writes arrive there, or it would create or
//! delete twice. Unfulfilled expectations expire after five minutes, so a missing event cannot block a controller
//! forever.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

/// Age after which unfulfilled expectations no longer block a sync.
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Expected creations (by count) and deletions (by uid) per controller key.
#[derive(Default)]
pub struct ControllerExpectations {
    entries: Mutex<HashMap<String, KeyExpectations>>,
}

struct KeyExpectations {
    creations: usize,
    deletions: HashSet<String>,
    created_at: Instant,
}

impl ControllerExpectations {
    /// Creates an empty set of expectations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Expects `count` more creations.
    pub fn expect_creations(&self, key: &str, count: usize) {
        self.ensure_entry(key).entry(key.into()).and_modify(|entry| entry.creations += count);
    }

    /// Expects the deletion of the objects with these uids.
    pub fn expect_deletions(&self, key: &str, uids: impl IntoIterator<Item = String>) {
        self.ensure_entry(key).entry(key.into()).and_modify(|entry| entry.deletions.extend(uids));
    }

    /// Records a creation that was observed, or that failed and will never be observed.
    pub fn creation_observed(&self, key: &str) {
        if let Some(entry) = self.lock_entries().get_mut(key) {
            entry.creations = entry.creations.saturating_sub(1);
        }
    }

    /// Records a deletion that was observed, or that failed and will never be observed.
    pub fn deletion_observed(&self, key: &str, uid: &str) {
        if let Some(entry) = self.lock_entries().get_mut(key) {
            entry.deletions.remove(uid);
        }
    }

    /// Whether all expectations of `key` are fulfilled or expired.
    pub fn is_satisfied(&self, key: &str) -> bool {
        self.lock_entries()
            .get(key)
            .is_none_or(|entry| entry.is_fulfilled() || entry.created_at.elapsed() > EXPECTATIONS_TIMEOUT)
    }

    /// Drops the expectations of a deleted object.
    pub fn forget(&self, key: &str) {
        self.lock_entries().remove(key);
    }

    /// Ensures an entry for `key`, replacing one that is fulfilled or expired.
    fn ensure_entry(&self, key: &str) -> MutexGuard<'_, HashMap<String, KeyExpectations>> {
        let mut entries = self.lock_entries();
        let entry = entries.entry(key.into()).or_insert_with(KeyExpectations::new);
        if entry.is_fulfilled() || entry.created_at.elapsed() > EXPECTATIONS_TIMEOUT {
            *entry = KeyExpectations::new();
        }
        entries
    }

    fn lock_entries(&self) -> MutexGuard<'_, HashMap<String, KeyExpectations>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl KeyExpectations {
    fn new() -> Self {
        Self { creations: 0, deletions: HashSet::new(), created_at: Instant::now() }
    }

    fn is_fulfilled(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn creations_are_counted_down() {
        let expectations = ControllerExpectations::new();
        assert!(expectations.is_satisfied("rs"));
        expectations.expect_creations("rs", 2);
        expectations.creation_observed("rs");
        assert!(!expectations.is_satisfied("rs") && expectations.is_satisfied("other"));
        expectations.creation_observed("rs");
        expectations.creation_observed("rs");
        assert!(expectations.is_satisfied("rs"));
    }

    #[tokio::test]
    async fn deletions_are_tracked_by_uid() {
        let expectations = ControllerExpectations::new();
        expectations.expect_deletions("rs", ["a".to_owned(), "b".to_owned()]);
        expectations.deletion_observed("rs", "a");
        expectations.deletion_observed("rs", "a");
        assert!(!expectations.is_satisfied("rs"));
        expectations.deletion_observed("rs", "b");
        assert!(expectations.is_satisfied("rs"));
    }

    #[tokio::test(start_paused = true)]
    async fn unfulfilled_expectations_expire() {
        let expectations = ControllerExpectations::new();
        expectations.expect_creations("rs", 1);
        tokio::time::advance(EXPECTATIONS_TIMEOUT + Duration::from_secs(1)).await;
        assert!(expectations.is_satisfied("rs"));
        expectations.expect_creations("rs", 1);
        expectations.creation_observed("rs");
        assert!(expectations.is_satisfied("rs"));
    }
}
