//! Read, change, write if unchanged: the one loop for everybody who changes a record.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{Precondition, Record, Store, StoreError, WriteRequest};

/// What a record becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateAction {
    /// It stays as it is; nothing is written.
    Keep,
    /// This document, deleted after the time if there is one.
    Put(Bytes, Option<Duration>),
    /// Nothing.
    Delete,
}

/// Changes the record under `key` by what `decide` says of it, and returns what is stored then. When somebody else
/// changes it in between, `decide` is asked again about the new record; an error of its own ends the loop.
pub async fn guaranteed_update<E: From<StoreError>>(
    store: &dyn Store,
    key: &str,
    mut decide: impl FnMut(Option<&Record>) -> Result<UpdateAction, E>,
) -> Result<Option<Record>, E> {
    let key: Arc<str> = key.into();
    let mut current = store.get(&key).await?;
    loop {
        let (value, ttl) = match decide(current.as_ref())? {
            UpdateAction::Keep => return Ok(current),
            UpdateAction::Delete if current.is_none() => return Ok(None),
            UpdateAction::Delete => (None, None),
            UpdateAction::Put(value, ttl) => (Some(value), ttl),
        };
        let precondition =
            current.as_ref().map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
        match store.write(WriteRequest { key: key.clone(), precondition, value: value.clone(), ttl }).await {
            Ok(revision) => return Ok(value.map(|value| Record { key, value, revision })),
            Err(StoreError::Conflict { current: found, .. }) => current = found,
            Err(error) => return Err(error.into()),
        }
    }
}
