//! Encoded batches of changes: the first watcher encodes a batch, others with the same position share it.
//!
//! Only a few short batches are kept; a watcher at another position encodes its own.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::Revision;

/// Batches kept per collection.
const MAX_BATCHES: usize = 4;
/// Longer batches are not kept.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Changes as they are sent to a watcher.
#[derive(Clone, Debug, Default)]
pub struct EncodedBatch {
    /// The encoded events; empty if no change is visible to the watcher.
    pub bytes: Bytes,
    /// The revision of the last visible change.
    pub last_revision: Option<Revision>,
    /// The number of changes encoded or filtered out.
    pub changes: usize,
}

/// Identifies a batch within a collection.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchKey<'a> {
    /// The name of the encoding; equal names give equal bytes.
    pub name: &'a Arc<str>,
    pub prefix: &'a str,
    pub after: Revision,
}

#[derive(Debug)]
struct CachedBatch {
    name: Arc<str>,
    prefix: Box<str>,
    after: Revision,
    until: Revision,
    written: EncodedBatch,
}

impl CachedBatch {
    fn has_key(&self, of: BatchKey<'_>) -> bool {
        self.after == of.after && self.name == *of.name && *self.prefix == *of.prefix
    }
}

/// The encoded batches of one collection.
#[derive(Debug, Default)]
pub(super) struct BatchCache(Mutex<Vec<CachedBatch>>);

impl BatchCache {
    /// Returns the cached batch, encoding it with `make` on a miss, and the revision at which it ends.
    pub fn get_or_encode<E>(
        &self,
        of: BatchKey<'_>,
        make: impl FnOnce() -> Result<(EncodedBatch, Revision), E>,
    ) -> Result<(EncodedBatch, Revision), E> {
        // Locked while encoding: others would encode the same batch.
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(run) = runs.iter().find(|run| run.has_key(of)) {
            return Ok((run.written.clone(), run.until));
        }
        let (written, until) = make()?;
        if written.changes > 0 && written.bytes.len() <= MAX_BATCH_BYTES {
            if runs.len() == MAX_BATCHES {
                runs.remove(0);
            }
            let (name, prefix) = (of.name.clone(), of.prefix.into());
            runs.push(CachedBatch { name, prefix, after: of.after, until, written: written.clone() });
        }
        Ok((written, until))
    }

    /// Whether the batch is cached.
    pub fn contains_key(&self, of: BatchKey<'_>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|run| run.has_key(of))
    }

    /// Drops all batches, after the history was replaced.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runs: &BatchCache, after: Revision, made: &'static str, want: &str) {
        let name: Arc<str> = "json".into();
        let of = BatchKey { name: &name, prefix: "/a/", after };
        let written = EncodedBatch { bytes: made.into(), last_revision: Some(after + 1), changes: made.len() };
        let (got, until) = runs.get_or_encode(of, || Ok::<_, ()>((written, after + 2))).unwrap();
        assert_eq!((&*got.bytes, until), (want.as_bytes(), after + 2));
    }

    #[test]
    fn batch_is_encoded_once_while_it_is_cached() {
        let runs = BatchCache::default();
        check(&runs, 1, "one", "one");
        check(&runs, 1, "other", "one");
        (2..=4).for_each(|after| check(&runs, after, "more", "more"));
        check(&runs, 1, "other", "one");
        check(&runs, 5, "last", "last");
        check(&runs, 1, "anew", "anew");
        runs.clear();
        check(&runs, 5, "cleared", "cleared");
    }

    #[test]
    fn empty_and_long_batches_are_not_cached() {
        let runs = BatchCache::default();
        check(&runs, 1, "", "");
        check(&runs, 1, "now", "now");
        let long: &'static str = "x".repeat(MAX_BATCH_BYTES + 1).leak();
        check(&runs, 2, long, long);
        check(&runs, 2, "short", "short");
    }
}
