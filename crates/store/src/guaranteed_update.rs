//! Read, change, and write if unchanged, retried on conflict.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{Precondition, Record, Store, StoreError, WriteRequest};

/// The outcome of a decision about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateAction {
    /// Leaves the record as it is.
    Keep,
    /// Writes this document, with a TTL if there is one.
    Put(Bytes, Option<Duration>),
    /// Deletes the record.
    Delete,
}

/// Applies the decision of `decide` to the record under `key` and returns the stored record. On a conflict, `decide` is
/// called again with the new record; its error ends the loop.
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
