//! How long changes are kept: one window over all collections, in the order of their revisions.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{collection::Collection, item::Change};
use crate::Revision;

/// Changes are forgotten in portions of this size.
const PORTION: usize = 256;

/// How much history a cache keeps.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Changes younger than this are kept.
    pub keep_for: Duration,
    /// At least this many of the newest changes are kept.
    pub keep_changes: usize,
    /// The changes never take more memory than about this; it wins over the other two.
    pub keep_bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { keep_for: Duration::from_secs(600), keep_changes: 10_000, keep_bytes: 48 << 20 }
    }
}

/// The changes of all collections, the oldest first.
pub(super) struct History {
    window: Window,
    kept: VecDeque<Kept>,
    bytes: usize,
}

struct Kept {
    revision: Revision,
    since: Instant,
    cost: usize,
    collection: Arc<Collection>,
}

/// Collections, and up to where each may forget.
pub(super) type Forgettable = Vec<(Arc<Collection>, Revision)>;

impl History {
    pub fn new(window: Window) -> Self {
        Self { window, kept: VecDeque::new(), bytes: 0 }
    }

    pub fn push(&mut self, collection: Arc<Collection>, change: &Change, since: Instant) {
        let cost = change.cost();
        self.bytes += cost;
        self.kept.push_back(Kept { revision: change.revision, since, cost, collection });
    }

    /// Takes out what is outside of the window, once it is worth it.
    pub fn expired(&mut self, now: Instant) -> Forgettable {
        let mut bytes = self.bytes;
        let Window { keep_for, keep_changes, keep_bytes } = self.window;
        let surplus = self.kept.len().saturating_sub(keep_changes);
        let outside = |(at, kept): &(usize, &Kept)| {
            let outside = bytes > keep_bytes || *at < surplus && now.duration_since(kept.since) > keep_for;
            bytes -= if outside { kept.cost } else { 0 };
            outside
        };
        let count = self.kept.iter().enumerate().take_while(outside).count();
        if count < PORTION && self.bytes <= keep_bytes {
            return Vec::new();
        }
        self.take(count)
    }

    /// Takes out everything up to and including `through`.
    pub fn through(&mut self, through: Revision) -> Forgettable {
        self.take(self.kept.partition_point(|kept| kept.revision <= through))
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }

    fn take(&mut self, count: usize) -> Forgettable {
        let mut last = HashMap::new();
        for kept in self.kept.drain(..count) {
            self.bytes -= kept.cost;
            last.insert(Arc::as_ptr(&kept.collection), (kept.collection, kept.revision));
        }
        last.into_values().collect()
    }
}
