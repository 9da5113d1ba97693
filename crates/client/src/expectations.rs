//! Expectations: what a loop has asked for and its informer has not shown yet.
//!
//! A loop that counts objects in its cache must not count again before its own creations and deletions arrive there:
//! it would create or delete twice. Expectations that are not met expire after five minutes, so that an event that
//! never comes does not stop the loop.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::Instant;

/// After this time unmet expectations no longer hold a loop back.
pub const EXPIRY: Duration = Duration::from_secs(5 * 60);

/// What each key's loop waits to see: creations by number, deletions by uid.
#[derive(Default)]
pub struct Expectations {
    entries: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    creations: usize,
    deletions: HashSet<String>,
    since: Instant,
}

impl Expectations {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `count` more creations are about to be asked for.
    pub fn expect_creations(&self, key: &str, count: usize) {
        self.expect(key).entry(key.into()).and_modify(|entry| entry.creations += count);
    }

    /// The objects with these uids are about to be deleted.
    pub fn expect_deletions(&self, key: &str, uids: impl IntoIterator<Item = String>) {
        self.expect(key).entry(key.into()).and_modify(|entry| entry.deletions.extend(uids));
    }

    /// A creation was seen, or failed and will never be seen.
    pub fn creation_observed(&self, key: &str) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.creations = entry.creations.saturating_sub(1);
        }
    }

    /// A deletion was seen, or failed and will never be seen.
    pub fn deletion_observed(&self, key: &str, uid: &str) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.deletions.remove(uid);
        }
    }

    /// Whether the cache shows all that was asked for, or it is too late to wait for it.
    pub fn satisfied(&self, key: &str) -> bool {
        self.entries().get(key).is_none_or(|entry| entry.is_met() || entry.since.elapsed() > EXPIRY)
    }

    /// Drops what is known of a key whose object is gone.
    pub fn forget(&self, key: &str) {
        self.entries().remove(key);
    }

    /// Makes sure that `key` has an entry, a new one if the last one is met or expired.
    fn expect(&self, key: &str) -> MutexGuard<'_, HashMap<String, Entry>> {
        let mut entries = self.entries();
        let entry = entries.entry(key.into()).or_insert_with(Entry::new);
        if entry.is_met() || entry.since.elapsed() > EXPIRY {
            *entry = Entry::new();
        }
        entries
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Entry {
    fn new() -> Self {
        Self { creations: 0, deletions: HashSet::new(), since: Instant::now() }
    }

    fn is_met(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn creations_count() {
        let expectations = Expectations::new();
        assert!(expectations.satisfied("rs"));
        expectations.expect_creations("rs", 2);
        expectations.creation_observed("rs");
        assert!(!expectations.satisfied("rs") && expectations.satisfied("other"));
        expectations.creation_observed("rs");
        expectations.creation_observed("rs");
        assert!(expectations.satisfied("rs"));
    }

    #[tokio::test]
    async fn deletions_are_told_apart() {
        let expectations = Expectations::new();
        expectations.expect_deletions("rs", ["a".to_owned(), "b".to_owned()]);
        expectations.deletion_observed("rs", "a");
        expectations.deletion_observed("rs", "a");
        assert!(!expectations.satisfied("rs"));
        expectations.deletion_observed("rs", "b");
        assert!(expectations.satisfied("rs"));
    }

    #[tokio::test(start_paused = true)]
    async fn unmet_expectations_expire() {
        let expectations = Expectations::new();
        expectations.expect_creations("rs", 1);
        tokio::time::advance(EXPIRY + Duration::from_secs(1)).await;
        assert!(expectations.satisfied("rs"));
        expectations.expect_creations("rs", 1);
        expectations.creation_observed("rs");
        assert!(expectations.satisfied("rs"));
    }
}
