//! Writes on their way: guards checked in order, each against what the ones before it leave behind.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::state::{Change, State};
use crate::{Error, Event, Guard, Record, Revision, Write};

/// Writes that will be committed together.
pub(super) struct Batch<'a> {
    state: &'a State,
    pub changes: Vec<Change>,
    /// The newest change of each key in this batch, as an index into `changes`.
    newest: HashMap<Arc<str>, usize>,
    pub now: u64,
}

impl<'a> Batch<'a> {
    pub fn new(state: &'a State) -> Self {
        Self { state, changes: Vec::new(), newest: HashMap::new(), now: now() }
    }

    pub fn add(&mut self, write: Write) -> Result<Revision, Error> {
        let current = self.current(&write.key);
        let holds = match write.guard {
            Guard::Absent => current.is_none(),
            Guard::Revision(revision) => current.as_ref().is_some_and(|record| record.revision == revision),
        };
        if !holds {
            return Err(Error::Conflict { key: write.key, guard: write.guard, current });
        }
        if write.value.is_none() && current.is_none() {
            // To delete what is not there changes nothing.
            return Ok(self.revision());
        }
        let expires = write.ttl.filter(|_| write.value.is_some()).map_or(0, |ttl| self.now.saturating_add(millis(ttl)));
        Ok(self.push(write.key, write.value, expires))
    }

    pub fn push(&mut self, key: Arc<str>, value: Option<bytes::Bytes>, expires: u64) -> Revision {
        let previous = self.current(&key);
        let key = previous.as_ref().map_or(key, |record| record.key.clone());
        let revision = self.revision() + 1;
        self.newest.insert(key.clone(), self.changes.len());
        let event = Event { revision, key, value, previous };
        self.changes.push(Change { event: event.into(), written: self.now, expires });
        revision
    }

    fn revision(&self) -> Revision {
        self.state.revision() + self.changes.len() as u64
    }

    pub fn current(&self, key: &str) -> Option<Record> {
        let Some(index) = self.newest.get(key) else { return self.state.get(key).cloned() };
        let event = &self.changes[*index].event;
        let value = event.value.clone()?;
        Some(Record { key: event.key.clone(), value, revision: event.revision })
    }
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
