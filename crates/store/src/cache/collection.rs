//! One collection in the cache: its items as of now, and its recent changes.
//!
//! The items are a persistent map: a reader takes all of them in one step and reads without holding anybody up. An
//! older state is the newest one with the changes after it undone.

use std::{
    collections::VecDeque,
    ops::Bound,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use imbl::OrdSet;
use tokio::sync::watch;

use super::{
    item::{ByKey, Change, Item},
    runs::Runs,
};
use crate::{Error, Record, Revision};

/// How many older states are at hand for the next page of a list.
const STATES: usize = 8;
/// So many of the newest changes, and of those not more than so many bytes, are kept as they were written for watchers.
const WRITTEN: usize = 512;
const WRITTEN_BYTES: usize = 8 << 20;

type Items = OrdSet<ByKey>;

/// The items of one collection.
pub(super) struct Collection {
    held: RwLock<Held>,
    /// The newest change; whoever watches waits for it to move.
    newest: watch::Sender<Revision>,
    /// What watchers share.
    pub runs: Runs,
}

struct Held {
    items: Items,
    /// In the order of their revisions; those up to `forgotten` are gone.
    changes: VecDeque<Arc<Change>>,
    /// Older revisions cannot be read.
    forgotten: Revision,
    /// Everything up to here, and perhaps more, is in `items`.
    reached: Revision,
    /// States that lists were begun at.
    states: VecDeque<(Revision, Items)>,
    /// How many of the newest changes may be kept as they were written for watchers, and how long they are.
    written: usize,
    written_bytes: usize,
}

/// All items under a prefix as of one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    items: Items,
    prefix: String,
    /// The first text after all that begin with the prefix.
    end: Option<String>,
    /// All of the collection is in `items`, not only what is under the prefix.
    whole: bool,
    /// The revision that it is true for.
    pub revision: Revision,
}

/// The first text after all that begin with a prefix; `None` where there may be none. Keys end their parts with `/`.
fn end(prefix: &str) -> Option<String> {
    let last = prefix.chars().next_back().filter(char::is_ascii)?;
    let next = char::from(u8::try_from(last).ok()?.checked_add(1)?);
    next.is_ascii().then(|| prefix[..prefix.len() - 1].to_owned() + next.encode_utf8(&mut [0; 4]))
}

impl Snapshot {
    /// Of what the engine has under a prefix.
    pub(super) fn new(items: impl Iterator<Item = Item>, prefix: &str, revision: Revision) -> Self {
        let items = items.map(|item| ByKey(item.into())).collect();
        Self { items, prefix: prefix.to_owned(), end: end(prefix), whole: false, revision }
    }

    /// The items in the order of their keys, beginning after `after`.
    pub fn after<'a>(&'a self, after: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Item>> {
        let start = match after {
            Some(after) if after >= self.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(self.prefix.as_str()),
        };
        let end = self.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.items.range::<_, str>((start, end)).map(|ByKey(item)| item)
    }

    /// The item under a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Item>> {
        self.items.get(key).map(|ByKey(item)| item)
    }
}

impl Collection {
    pub fn new(reached: Revision) -> Self {
        let held = RwLock::new(Held::new(Items::new(), reached));
        Self { held, newest: watch::Sender::new(reached), runs: Runs::default() }
    }

    // A poisoned lock is taken as it is: what changes the contents leaves nothing half-made.
    fn read(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.newest.subscribe()
    }

    /// How many watch it.
    pub fn watchers(&self) -> usize {
        self.newest.receiver_count()
    }

    /// Wakes those who wait for a change.
    pub fn wake(&self) {
        let reached = self.read().reached;
        self.newest.send_replace(reached);
    }

    /// The state as of now; `published` is what all of the cache has reached.
    pub fn now(&self, prefix: &str, published: Revision) -> Snapshot {
        let held = self.read();
        let revision = held.reached.max(published);
        Snapshot { items: held.items.clone(), prefix: prefix.to_owned(), end: end(prefix), whole: true, revision }
    }

    /// The state as of a revision that the cache has reached.
    pub fn at(&self, prefix: &str, revision: Revision) -> Result<Snapshot, Error> {
        let held = self.read();
        held.check(revision)?;
        let begun = held.states.iter().find(|(at, _)| *at == revision).map(|(_, items)| items.clone());
        let items = begun.unwrap_or_else(|| held.undone(revision));
        Ok(Snapshot { items, prefix: prefix.to_owned(), end: end(prefix), whole: true, revision })
    }

    /// Keeps a state at hand: there will be a next page.
    pub fn keep(&self, snapshot: &Snapshot) {
        let mut held = self.write();
        if !snapshot.whole
            || snapshot.revision < held.forgotten
            || held.states.iter().any(|(at, _)| *at == snapshot.revision)
        {
            return;
        }
        held.states.push_back((snapshot.revision, snapshot.items.clone()));
        let oldest = (held.states.len() > STATES).then(|| held.states.pop_front());
        drop(held);
        drop(oldest);
    }

    /// Puts the next change in, and returns it if it changed anything.
    pub fn apply(&self, revision: Revision, key: &str, item: Option<Item>) -> Option<Arc<Change>> {
        let item = item.map(Arc::new);
        let mut held = self.write();
        let previous = match &item {
            Some(item) => held.items.insert(ByKey(item.clone())),
            None => held.items.remove(key),
        };
        if let Some(ByKey(previous)) = &previous {
            previous.forget_forms();
        }
        held.reached = revision;
        let change = Arc::new(Change::new(revision, item, previous.map(|ByKey(item)| item))?);
        let old = held.push(change.clone());
        drop(held);
        old.iter().for_each(|old| old.forget_encoded());
        Some(change)
    }

    /// Begins anew with these items, as of a revision; the history is gone.
    pub fn replace(&self, items: Vec<Arc<Item>>, revision: Revision) {
        let items = items.into_iter().map(ByKey).collect();
        let new = Held::new(items, revision);
        let old = std::mem::replace(&mut *self.write(), new);
        drop(old);
        self.runs.clear();
        self.wake();
    }

    /// Forgets the changes up to and including `through`.
    pub fn forget(&self, through: Revision) {
        let mut held = self.write();
        let count = held.changes.partition_point(|change| change.revision <= through);
        let Some(last) = count.checked_sub(1).and_then(|last| held.changes.get(last)) else { return };
        held.forgotten = last.revision;
        let changes = held.pop(count);
        let forgotten = held.forgotten;
        let (kept, states) = held.states.drain(..).partition::<VecDeque<_>, _>(|(at, _)| *at >= forgotten);
        held.states = kept;
        drop(held);
        drop((changes, states));
    }

    /// Takes up to `limit` changes after `cursor` under a prefix, and tells up to where it looked.
    pub fn scan(&self, look: Look<'_>, out: &mut Vec<Arc<Change>>) -> Result<Revision, Error> {
        let held = self.read();
        held.check(look.cursor)?;
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
    pub fn records(&self, published: Revision) -> (Vec<Record>, Revision) {
        let snapshot = self.now("", published);
        (snapshot.after(None).map(|item| item.record.clone()).collect(), snapshot.revision)
    }
}

/// What a watcher wants to see.
pub(super) struct Look<'a> {
    pub cursor: Revision,
    pub prefix: &'a str,
    pub limit: usize,
    /// What all of the cache has reached, read before looking.
    pub published: Revision,
}

impl Held {
    fn new(items: Items, reached: Revision) -> Self {
        let (changes, states) = (VecDeque::new(), VecDeque::new());
        Self { items, changes, forgotten: reached, reached, states, written: 0, written_bytes: 0 }
    }

    /// Adds a change, and returns those that are not to be kept as they were written any more.
    fn push(&mut self, change: Arc<Change>) -> Vec<Arc<Change>> {
        self.written += 1;
        self.written_bytes += change.length();
        self.changes.push_back(change);
        let mut old = Vec::new();
        while self.written > WRITTEN || self.written > 1 && self.written_bytes > WRITTEN_BYTES {
            let Some(change) = self.changes.get(self.changes.len() - self.written) else { break };
            self.written -= 1;
            self.written_bytes -= change.length();
            old.push(change.clone());
        }
        old
    }

    /// Takes out the oldest changes.
    fn pop(&mut self, count: usize) -> Vec<Arc<Change>> {
        let written = self.written.saturating_sub(self.changes.len() - count);
        let popped: Vec<_> = self.changes.drain(..count).collect();
        self.written -= written;
        self.written_bytes -= popped[count - written..].iter().map(|change| change.length()).sum::<usize>();
        popped
    }

    fn check(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.forgotten {
            return Err(Error::Compacted { requested: revision, oldest: self.forgotten });
        }
        Ok(())
    }

    fn undone(&self, revision: Revision) -> Items {
        let mut items = self.items.clone();
        for change in self.changes.iter().rev().take_while(|change| change.revision > revision) {
            match &change.previous {
                Some(previous) => items.insert(ByKey(previous.clone())),
                None => items.remove::<str>(change.key()),
            };
        }
        items
    }
}
