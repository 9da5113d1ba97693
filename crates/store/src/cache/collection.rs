//! One collection in the cache: its items as of now, and its recent changes.
//!
//! The items are a persistent map: a reader clones it in one step and reads without a lock. An older state is the newest
//! one with the changes after it undone.

use std::{
    collections::VecDeque,
    ops::Bound,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use imbl::OrdSet;
use tokio::sync::watch;

use super::{
    SelectionBloomFilter,
    encoded_batches::BatchCache,
    item::{CachedChange, CachedItem, ItemByKey},
};
use crate::{Record, Revision, StoreError};

/// Older snapshots kept for the next page of a list.
const MAX_KEPT_SNAPSHOTS: usize = 8;
/// Limits of the newest changes whose encodings are kept for watchers.
const MAX_ENCODED_CHANGES: usize = 512;
const MAX_ENCODED_BYTES: usize = 8 << 20;

type ItemSet = OrdSet<ItemByKey>;

/// The items of one collection.
pub(super) struct CachedCollection {
    contents: RwLock<CollectionState>,
    /// The newest change, for watchers to wait on.
    newest: watch::Sender<Revision>,
    /// Encoded batches that watchers share.
    pub batches: BatchCache,
}

struct CollectionState {
    items: ItemSet,
    /// In the order of their revisions; those up to `compacted` are gone.
    changes: VecDeque<Arc<CachedChange>>,
    /// Older revisions cannot be read.
    compacted: Revision,
    /// Everything up to here, and perhaps more, is in `items`.
    reached: Revision,
    /// States of paged lists in progress.
    kept_snapshots: VecDeque<(Revision, ItemSet)>,
    /// The number of newest changes whose encodings are kept, and their estimated length.
    encoded_changes: usize,
    encoded_bytes: usize,
}

/// All items under a prefix as of one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    items: ItemSet,
    prefix: String,
    /// The first text after all that begin with the prefix.
    end: Option<String>,
    /// All of the collection is in `items`, not only what is under the prefix.
    whole: bool,
    /// The revision that it is true for.
    pub revision: Revision,
}

/// The first string after all that begin with a prefix; `None` where there may be none. Prefixes end with `/`.
fn prefix_end(prefix: &str) -> Option<String> {
    let last = prefix.chars().next_back().filter(char::is_ascii)?;
    let next = char::from(u8::try_from(last).ok()?.checked_add(1)?);
    next.is_ascii().then(|| prefix[..prefix.len() - 1].to_owned() + next.encode_utf8(&mut [0; 4]))
}

impl Snapshot {
    /// A snapshot of the engine's records under a prefix.
    pub(super) fn new(items: impl Iterator<Item = CachedItem>, prefix: &str, revision: Revision) -> Self {
        let items = items.map(|item| ItemByKey::from(Arc::new(item))).collect();
        Self { items, prefix: prefix.to_owned(), end: prefix_end(prefix), whole: false, revision }
    }

    /// The items in the order of their keys, beginning after `after`.
    pub fn items_after<'a>(&'a self, after: Option<&'a str>) -> impl Iterator<Item = &'a Arc<CachedItem>> {
        self.range_after(after).map(|entry| &entry.item)
    }

    /// The items after `after` that may have everything that `required` has, in the order of their keys.
    pub fn candidates_after<'a>(
        &'a self,
        after: Option<&'a str>,
        required: SelectionBloomFilter,
    ) -> impl Iterator<Item = &'a Arc<CachedItem>> {
        self.range_after(after).filter(move |entry| entry.filter.may_include(required)).map(|entry| &entry.item)
    }

    fn range_after<'a>(&'a self, after: Option<&'a str>) -> impl Iterator<Item = &'a ItemByKey> {
        let start = match after {
            Some(after) if after >= self.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(self.prefix.as_str()),
        };
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.items.range::<_, str>((start, end))
    }

    /// The item under a key.
    pub fn get(&self, key: &str) -> Option<&Arc<CachedItem>> {
        self.items.get(key).map(|entry| &entry.item)
    }
}

impl CachedCollection {
    pub fn new(reached: Revision) -> Self {
        let held = RwLock::new(CollectionState::new(ItemSet::new(), reached));
        Self { contents: held, newest: watch::Sender::new(reached), batches: BatchCache::default() }
    }

    // A poisoned lock is taken as it is: what changes the contents leaves nothing half-made.
    fn read(&self) -> RwLockReadGuard<'_, CollectionState> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CollectionState> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }

    /// The number of watchers.
    pub fn watcher_count(&self) -> usize {
        self.newest.receiver_count()
    }

    /// Wakes the watchers that wait for a change.
    pub fn wake_watchers(&self) {
        let reached = self.read().reached;
        self.newest.send_replace(reached);
    }

    /// The state as of now; `published` is what all of the cache has reached.
    pub fn newest_snapshot(&self, prefix: &str, published: Revision) -> Snapshot {
        let held = self.read();
        let revision = held.reached.max(published);
        Snapshot {
            items: held.items.clone(),
            prefix: prefix.to_owned(),
            end: prefix_end(prefix),
            whole: true,
            revision,
        }
    }

    /// The state as of a revision that the cache has reached.
    pub fn snapshot_at(&self, prefix: &str, revision: Revision) -> Result<Snapshot, StoreError> {
        let held = self.read();
        held.check_revision(revision)?;
        let begun = held.kept_snapshots.iter().find(|(at, _)| *at == revision).map(|(_, items)| items.clone());
        let items = begun.unwrap_or_else(|| held.items_at(revision));
        Ok(Snapshot { items, prefix: prefix.to_owned(), end: prefix_end(prefix), whole: true, revision })
    }

    /// Keeps a snapshot for the next page of its list.
    pub fn keep_snapshot(&self, snapshot: &Snapshot) {
        let mut held = self.write();
        if !snapshot.whole
            || snapshot.revision < held.compacted
            || held.kept_snapshots.iter().any(|(at, _)| *at == snapshot.revision)
        {
            return;
        }
        held.kept_snapshots.push_back((snapshot.revision, snapshot.items.clone()));
        let oldest = (held.kept_snapshots.len() > MAX_KEPT_SNAPSHOTS).then(|| held.kept_snapshots.pop_front());
        drop(held);
        drop(oldest);
    }

    /// Applies the next change; returns it if it changed anything.
    pub fn apply_change(&self, revision: Revision, key: &str, item: Option<CachedItem>) -> Option<Arc<CachedChange>> {
        let item = item.map(Arc::new);
        let mut held = self.write();
        let previous = match &item {
            Some(item) => held.items.insert(item.clone().into()),
            None => held.items.remove(key),
        };
        if let Some(previous) = &previous {
            previous.item.drop_encodings();
        }
        held.reached = revision;
        let change = Arc::new(CachedChange::new(revision, item, previous.map(|entry| entry.item))?);
        let old = held.push_change(change.clone());
        drop(held);
        old.iter().for_each(|old| old.drop_encoded());
        Some(change)
    }

    /// Replaces all items as of a revision and clears the history.
    pub fn replace_items(&self, items: Vec<Arc<CachedItem>>, revision: Revision) {
        let items = items.into_iter().map(ItemByKey::from).collect();
        let new = CollectionState::new(items, revision);
        let old = std::mem::replace(&mut *self.write(), new);
        drop(old);
        self.batches.clear();
        self.wake_watchers();
    }

    /// Removes the changes up to and including `through` from the history.
    pub fn trim_history(&self, through: Revision) {
        let mut held = self.write();
        let count = held.changes.partition_point(|change| change.revision <= through);
        let Some(last) = count.checked_sub(1).and_then(|last| held.changes.get(last)) else { return };
        held.compacted = last.revision;
        let changes = held.pop_changes(count);
        let forgotten = held.compacted;
        let (kept, states) = held.kept_snapshots.drain(..).partition::<VecDeque<_>, _>(|(at, _)| *at >= forgotten);
        held.kept_snapshots = kept;
        drop(held);
        drop((changes, states));
    }

    /// Takes up to `limit` changes after `cursor` under a prefix; returns the revision that it scanned to.
    pub fn scan_changes(
        &self,
        look: ScanRequest<'_>,
        out: &mut Vec<Arc<CachedChange>>,
    ) -> Result<Revision, StoreError> {
        let held = self.read();
        held.check_revision(look.cursor)?;
        let first = held.changes.partition_point(|change| change.revision <= look.cursor);
        for change in held.changes.range(first..) {
            if !change.key().starts_with(look.prefix) {
                continue;
            }
            if out.len() == look.limit {
                return Ok(out.last().map_or(look.cursor, |change| change.revision));
            }
            out.push(change.clone());
        }
        Ok(held.reached.max(look.published).max(look.cursor))
    }

    /// All records, and the revision that they are true for.
    pub fn all_records(&self, published: Revision) -> (Vec<Record>, Revision) {
        let snapshot = self.newest_snapshot("", published);
        (snapshot.items_after(None).map(|item| item.record.clone()).collect(), snapshot.revision)
    }
}

/// A scan for changes on behalf of a watcher.
pub(super) struct ScanRequest<'a> {
    pub cursor: Revision,
    pub prefix: &'a str,
    pub limit: usize,
    /// The published revision of the whole cache, read before the scan.
    pub published: Revision,
}

impl CollectionState {
    fn new(items: ItemSet, reached: Revision) -> Self {
        let (changes, states) = (VecDeque::new(), VecDeque::new());
        Self {
            items,
            changes,
            compacted: reached,
            reached,
            kept_snapshots: states,
            encoded_changes: 0,
            encoded_bytes: 0,
        }
    }

    /// Adds a change; returns those whose encodings are no longer kept.
    fn push_change(&mut self, change: Arc<CachedChange>) -> Vec<Arc<CachedChange>> {
        self.encoded_changes += 1;
        self.encoded_bytes += change.encoded_len_estimate();
        self.changes.push_back(change);
        let mut old = Vec::new();
        while self.encoded_changes > MAX_ENCODED_CHANGES
            || self.encoded_changes > 1 && self.encoded_bytes > MAX_ENCODED_BYTES
        {
            let Some(change) = self.changes.get(self.changes.len() - self.encoded_changes) else { break };
            self.encoded_changes -= 1;
            self.encoded_bytes -= change.encoded_len_estimate();
            old.push(change.clone());
        }
        old
    }

    /// Removes the oldest changes.
    fn pop_changes(&mut self, count: usize) -> Vec<Arc<CachedChange>> {
        let written = self.encoded_changes.saturating_sub(self.changes.len() - count);
        let popped: Vec<_> = self.changes.drain(..count).collect();
        self.encoded_changes -= written;
        self.encoded_bytes -=
            popped[count - written..].iter().map(|change| change.encoded_len_estimate()).sum::<usize>();
        popped
    }

    fn check_revision(&self, revision: Revision) -> Result<(), StoreError> {
        if revision < self.compacted {
            return Err(StoreError::Compacted { requested: revision, oldest: self.compacted });
        }
        Ok(())
    }

    fn items_at(&self, revision: Revision) -> ItemSet {
        let mut items = self.items.clone();
        for change in self.changes.iter().rev().take_while(|change| change.revision > revision) {
            match &change.previous {
                Some(previous) => items.insert(previous.clone().into()),
                None => items.remove::<str>(change.key()),
            };
        }
        items
    }
}
