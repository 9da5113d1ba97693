//! Writes on their way: preconditions checked in order, each against what the ones before it leave behind.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::state::{EngineState, LoggedChange};
use crate::{Precondition, Record, Revision, StoreError, StoreEvent, WriteRequest};

/// Writes that will be committed together.
pub(super) struct WriteBatch<'a> {
    state: &'a EngineState,
    pub changes: Vec<LoggedChange>,
    /// The newest change of each key in this batch, as an index into `changes`.
    newest: HashMap<Arc<str>, usize>,
    pub now: u64,
}

impl<'a> WriteBatch<'a> {
    pub fn new(state: &'a EngineState) -> Self {
        Self { state, changes: Vec::new(), newest: HashMap::new(), now: unix_millis() }
    }

    pub fn add_write(&mut self, write: WriteRequest) -> Result<Revision, StoreError> {
        let current = self.current_record(&write.key);
        let holds = match write.precondition {
            Precondition::Absent => current.is_none(),
            Precondition::Revision(revision) => current.as_ref().is_some_and(|record| record.revision == revision),
        };
        if !holds {
            return Err(StoreError::Conflict { key: write.key, precondition: write.precondition, current });
        }
        if write.value.is_none() && current.is_none() {
            // To delete what is not there changes nothing.
            return Ok(self.last_revision());
        }
        let expires =
            write.ttl.filter(|_| write.value.is_some()).map_or(0, |ttl| self.now.saturating_add(duration_millis(ttl)));
        Ok(self.push_change(write.key, write.value, expires))
    }

    pub fn push_change(&mut self, key: Arc<str>, value: Option<bytes::Bytes>, expires: u64) -> Revision {
        let previous = self.current_record(&key);
        let key = previous.as_ref().map_or(key, |record| record.key.clone());
        let revision = self.last_revision() + 1;
        self.newest.insert(key.clone(), self.changes.len());
        let event = StoreEvent { revision, key, value, previous };
        self.changes.push(LoggedChange { event: event.into(), written: self.now, expires });
        revision
    }

    fn last_revision(&self) -> Revision {
        self.state.revision() + self.changes.len() as u64
    }

    pub fn current_record(&self, key: &str) -> Option<Record> {
        let Some(index) = self.newest.get(key) else { return self.state.get(key).cloned() };
        let event = &self.changes[*index].event;
        let value = event.value.clone()?;
        Some(Record { key: event.key.clone(), value, revision: event.revision })
    }
}

pub(super) fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, duration_millis)
}

pub(super) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
