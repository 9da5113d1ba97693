//! Read, change, write if unchanged: the one loop for everybody who changes a record.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{Error, Guard, Record, Store, Write};

/// What a record becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It stays as it is; nothing is written.
    Keep,
    /// This document, deleted after the time if there is one.
    Put(Bytes, Option<Duration>),
    /// Nothing.
    Delete,
}

/// Changes the record under `key` by what `decide` says of it, and returns what is stored then. When somebody else
/// changes it in between, `decide` is asked again about the new record; an error of its own ends the loop.
pub async fn change<E: From<Error>>(
    store: &dyn Store,
    key: &str,
    mut decide: impl FnMut(Option<&Record>) -> Result<Next, E>,
) -> Result<Option<Record>, E> {
    let key: Arc<str> = key.into();
    let mut current = store.get(&key).await?;
    loop {
        let (value, ttl) = match decide(current.as_ref())? {
            Next::Keep => return Ok(current),
            Next::Delete if current.is_none() => return Ok(None),
            Next::Delete => (None, None),
            Next::Put(value, ttl) => (Some(value), ttl),
        };
        let guard = current.as_ref().map_or(Guard::Absent, |record| Guard::Revision(record.revision));
        match store.write(Write { key: key.clone(), guard, value: value.clone(), ttl }).await {
            Ok(revision) => return Ok(value.map(|value| Record { key, value, revision })),
            Err(Error::Conflict { current: found, .. }) => current = found,
            Err(error) => return Err(error.into()),
        }
    }
}
