//! The history window over all collections, in the order of revisions.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{collection::CachedCollection, item::CachedChange};
use crate::{HistoryWindow, Revision};

/// Changes are trimmed in portions of at least this size.
const MIN_TRIM: usize = 256;

/// The changes of all collections, the oldest first.
pub(super) struct ChangeHistory {
    window: HistoryWindow,
    entries: VecDeque<HistoryEntry>,
    bytes: usize,
}

struct HistoryEntry {
    revision: Revision,
    since: Instant,
    cost: usize,
    collection: Arc<CachedCollection>,
}

/// Collections, and the revision through which each is trimmed.
pub(super) type TrimPlan = Vec<(Arc<CachedCollection>, Revision)>;

impl ChangeHistory {
    pub fn new(window: HistoryWindow) -> Self {
        Self { window, entries: VecDeque::new(), bytes: 0 }
    }

    pub fn push_change(&mut self, collection: Arc<CachedCollection>, change: &CachedChange, since: Instant) {
        let cost = change.memory_cost();
        self.bytes += cost;
        self.entries.push_back(HistoryEntry { revision: change.revision, since, cost, collection });
    }

    /// Removes the changes outside of the window, if they are enough to trim.
    pub fn take_expired(&mut self, now: Instant) -> TrimPlan {
        let (mut bytes, all) = (self.bytes, self.entries.len());
        let outside = |(at, kept): &(usize, &HistoryEntry)| {
            let is_old = now.duration_since(kept.since) > self.window.keep_for;
            let outside = self.window.is_expired(all - at, bytes, is_old);
            bytes -= if outside { kept.cost } else { 0 };
            outside
        };
        let count = self.entries.iter().enumerate().take_while(outside).count();
        if count < MIN_TRIM && self.bytes <= self.window.keep_bytes {
            return Vec::new();
        }
        self.take_oldest(count)
    }

    /// Removes the changes up to and including `through`.
    pub fn take_through(&mut self, through: Revision) -> TrimPlan {
        self.take_oldest(self.entries.partition_point(|kept| kept.revision <= through))
    }

    /// Removes all changes.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    fn take_oldest(&mut self, count: usize) -> TrimPlan {
        let mut last = HashMap::new();
        for kept in self.entries.drain(..count) {
            self.bytes -= kept.cost;
            last.insert(Arc::as_ptr(&kept.collection), (kept.collection, kept.revision));
        }
        last.into_values().collect()
    }
}
