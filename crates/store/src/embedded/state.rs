//! The in-memory state of the embedded engine: the current records and the recent history.
//!
//! Every revision is exactly one change, so the history is contiguous: its first change is revision `base + 1`. Each
//! change carries the record that it replaced, which is what makes older revisions readable.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use crate::{HistoryWindow, ListOptions, ListPage, Record, Revision, StoreError, StoreEvent};

/// The memory of a change besides the replaced document.
const CHANGE_BYTES: usize = 192;

/// One write, as it is kept in memory and on disk.
#[derive(Clone, Debug)]
pub(super) struct LoggedChange {
    pub event: Arc<StoreEvent>,
    /// When it was written, in milliseconds since the Unix epoch.
    pub written: u64,
    /// When the document is to be deleted, in the same unit; 0: never.
    pub expires: u64,
}

/// The current records and the changes after `base`.
#[derive(Debug, Default)]
pub(super) struct EngineState {
    records: BTreeMap<Arc<str>, Record>,
    history: VecDeque<LoggedChange>,
    /// The changes up to here are gone from memory.
    base: Revision,
    /// Everything up to here is forgotten for readers: it is the oldest revision that they can read. Never less than
    /// `base`, and more than it only while a checkpoint needs what is between.
    compacted: Revision,
    /// A checkpoint is being written as of this revision.
    pinned: Option<Revision>,
    history_bytes: usize,
    record_bytes: usize,
    /// When documents expire, by the revision that wrote them; kept as long as their revision can be read.
    expires: HashMap<Revision, u64>,
}

/// The result of a history scan for one watcher.
pub(super) struct HistoryScan {
    pub events: Vec<Arc<StoreEvent>>,
    /// The watcher has seen everything up to here.
    pub through: Revision,
    /// There is more after `through`.
    pub more: bool,
}

impl EngineState {
    pub fn new(compacted: Revision) -> Self {
        Self { base: compacted, compacted, ..Self::default() }
    }

    pub fn revision(&self) -> Revision {
        self.base + self.history.len() as u64
    }

    /// The total length of the current keys and documents.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Keeps the history that a checkpoint of the compacted revision needs, until [`EngineState::unpin_revision`].
    pub fn pin_revision(&mut self) -> Revision {
        *self.pinned.insert(self.compacted)
    }

    pub fn unpin_revision(&mut self) -> Vec<LoggedChange> {
        self.pinned = None;
        self.trim_history(self.compacted)
    }

    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    pub fn get(&self, key: &str) -> Option<&Record> {
        self.records.get(key)
    }

    /// Fails if the state as of `revision`, or a change after it, is not available.
    pub fn check_revision(&self, revision: Revision) -> Result<(), StoreError> {
        if revision < self.compacted {
            return Err(StoreError::Compacted { requested: revision, oldest: self.compacted });
        }
        if revision > self.revision() {
            return Err(StoreError::Future { requested: revision, current: self.revision() });
        }
        Ok(())
    }

    /// When the document that a revision wrote expires; 0: never.
    pub fn expires(&self, revision: Revision) -> u64 {
        self.expires.get(&revision).copied().unwrap_or(0)
    }

    /// Puts back a record whose change is already compacted. Used only while loading.
    pub fn restore_record(&mut self, record: Record, expires: u64) -> Option<Record> {
        if expires != 0 {
            self.expires.insert(record.revision, expires);
        }
        self.record_bytes += record_size(&record);
        self.records.insert(record.key.clone(), record)
    }

    /// Adds the next change.
    pub fn apply_change(&mut self, change: LoggedChange) {
        let event = &change.event;
        debug_assert_eq!(event.revision, self.revision() + 1);
        match &event.value {
            Some(value) => {
                let record = Record { key: event.key.clone(), value: value.clone(), revision: event.revision };
                self.record_bytes += record_size(&record);
                self.records.insert(event.key.clone(), record);
            }
            None => {
                self.records.remove(&event.key);
            }
        }
        self.record_bytes -= event.previous.as_ref().map_or(0, record_size);
        if change.expires != 0 {
            self.expires.insert(event.revision, change.expires);
        }
        self.history_bytes += event_cost(event);
        self.history.push_back(change);
    }

    /// Forgets the changes up to and including `through` and returns them, so that they are dropped outside the lock.
    /// Beyond the newest revision, it makes `through` the newest.
    pub fn trim_history(&mut self, through: Revision) -> Vec<LoggedChange> {
        let jump = through > self.revision();
        self.compacted = self.compacted.max(through);
        let through = self.pinned.map_or(self.compacted, |pinned| pinned.min(self.compacted));
        let count = (through.saturating_sub(self.base) as usize).min(self.history.len());
        let trimmed: Vec<_> = self.history.drain(..count).collect();
        self.base = if jump { through } else { self.base + count as u64 };
        self.history_bytes -= trimmed.iter().map(|change| event_cost(&change.event)).sum::<usize>();
        for replaced in trimmed.iter().filter_map(|change| change.event.previous.as_ref()) {
            self.expires.remove(&replaced.revision);
        }
        trimmed
    }

    /// Up to where the history is outside of the window; what was written before `before` is old. It looks at no more
    /// than `limit` changes.
    pub fn trim_target(&self, window: &HistoryWindow, before: u64, limit: usize) -> Revision {
        let mut bytes = self.history_bytes;
        let mut through = self.compacted;
        for change in self.history.range((self.compacted - self.base) as usize..).take(limit) {
            if !window.is_expired((self.revision() - through) as usize, bytes, change.written < before) {
                break;
            }
            bytes -= event_cost(&change.event);
            through += 1;
        }
        through
    }

    /// Looks at up to `limit` changes after `cursor` and takes up to `batch` of those under `prefix`.
    pub fn scan_history(
        &self,
        cursor: Revision,
        prefix: &str,
        limit: usize,
        batch: usize,
    ) -> Result<HistoryScan, StoreError> {
        self.check_revision(cursor)?;
        let mut scan = HistoryScan { events: Vec::new(), through: cursor, more: false };
        for change in self.history.range((cursor - self.base) as usize..).take(limit) {
            if scan.events.len() == batch {
                break;
            }
            if change.event.key.starts_with(prefix) {
                scan.events.push(change.event.clone());
            }
            scan.through = change.event.revision;
        }
        scan.more = scan.through < self.revision();
        Ok(scan)
    }

    pub fn list_records(&self, range: &ListOptions) -> Result<ListPage, StoreError> {
        let revision = range.at.unwrap_or(self.revision());
        self.check_revision(revision)?;
        Ok(self.page_at(range, revision))
    }

    /// A page as of a revision that is kept, be it for readers or because it is pinned.
    pub fn page_at(&self, range: &ListOptions, revision: Revision) -> ListPage {
        let changed = self.changed_since(revision, &range.prefix);
        let mut matching = self.as_of(&changed, range);
        let records = matching.by_ref().take(range.limit.unwrap_or(usize::MAX)).cloned().collect();
        ListPage { records, revision, remaining: matching.count() }
    }

    /// For each key that changed after `revision`, what it was then.
    fn changed_since(&self, revision: Revision, prefix: &str) -> BTreeMap<&str, Option<&Record>> {
        let after = self.history.range((revision - self.base) as usize..).map(|change| &change.event);
        let newest_first = after.rev().filter(|event| event.key.starts_with(prefix));
        newest_first.map(|event| (&*event.key, event.previous.as_ref())).collect()
    }

    /// The records of a range, in order of their keys, with `changed` rolled back.
    fn as_of<'a>(
        &'a self,
        changed: &'a BTreeMap<&str, Option<&'a Record>>,
        range: &'a ListOptions,
    ) -> impl Iterator<Item = &'a Record> {
        let start = match range.after.as_deref() {
            Some(after) if after >= range.prefix.as_str() => Bound::Excluded(after),
            _ => Bound::Included(range.prefix.as_str()),
        };
        let bounds = (start, Bound::Unbounded);
        let unchanged = self.records.range::<str, _>(bounds).map(|(_, record)| record);
        let unchanged = unchanged.take_while(|record| record.key.starts_with(&range.prefix));
        let mut unchanged = unchanged.filter(|record| !changed.contains_key(&*record.key)).peekable();
        let mut rolled_back = changed.range::<str, _>(bounds).filter_map(|(_, record)| *record).peekable();
        std::iter::from_fn(move || match (unchanged.peek(), rolled_back.peek()) {
            (Some(a), Some(b)) if b.key < a.key => rolled_back.next(),
            (Some(_), _) => unchanged.next(),
            (None, _) => rolled_back.next(),
        })
    }
}

fn event_cost(event: &StoreEvent) -> usize {
    CHANGE_BYTES + event.key.len() + event.previous.as_ref().map_or(0, |record| record.value.len())
}

fn record_size(record: &Record) -> usize {
    record.key.len() + record.value.len()
}
