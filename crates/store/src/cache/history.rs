//! How long changes are kept: one window over all collections, in the order of their revisions.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{collection::Collection, item::Change};
use crate::{Revision, Window};

/// Changes are forgotten in portions of this size.
const PORTION: usize = 256;

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
        let (mut bytes, all) = (self.bytes, self.kept.len());
        let outside = |(at, kept): &(usize, &Kept)| {
            let is_old = now.duration_since(kept.since) > self.window.keep_for;
            let outside = self.window.forgets(all - at, bytes, is_old);
            bytes -= if outside { kept.cost } else { 0 };
            outside
        };
        let count = self.kept.iter().enumerate().take_while(outside).count();
        if count < PORTION && self.bytes <= self.window.keep_bytes {
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
