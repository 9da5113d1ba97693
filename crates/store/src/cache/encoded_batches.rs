//! Runs of changes as one piece: what many watchers read alike is put together by the first of them, and shared by those
//! who stand at the same place.
//!
//! Few runs are kept, and no long ones: whoever is elsewhere puts together his own.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::Revision;

/// How many runs are kept.
const MAX_BATCHES: usize = 4;
/// A longer one is not kept.
const MAX_BATCH_BYTES: usize = 256 << 10;

/// Some changes as they are sent to a watcher.
#[derive(Clone, Debug, Default)]
pub struct EncodedBatch {
    /// What is sent; empty where none of the changes is shown.
    pub bytes: Bytes,
    /// The last change that is shown.
    pub last_revision: Option<Revision>,
    /// How many changes were looked at.
    pub changes: usize,
}

/// What a run is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchKey<'a> {
    /// How it is written; under one name everybody writes the same.
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

/// The runs of one collection.
#[derive(Debug, Default)]
pub(super) struct BatchCache(Mutex<Vec<CachedBatch>>);

impl BatchCache {
    /// The run that somebody put together, or else the one that `make` does, and where it ends.
    pub fn get_or_encode<E>(
        &self,
        of: BatchKey<'_>,
        make: impl FnOnce() -> Result<(EncodedBatch, Revision), E>,
    ) -> Result<(EncodedBatch, Revision), E> {
        // It stays locked meanwhile: everybody else would make the same.
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

    /// Whether there is such a run.
    pub fn contains_key(&self, of: BatchKey<'_>) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|run| run.has_key(of))
    }

    /// The history is another one.
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
    fn a_run_is_made_once_while_others_want_it() {
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
    fn nothing_and_too_much_are_not_kept() {
        let runs = BatchCache::default();
        check(&runs, 1, "", "");
        check(&runs, 1, "now", "now");
        let long: &'static str = "x".repeat(MAX_BATCH_BYTES + 1).leak();
        check(&runs, 2, long, long);
        check(&runs, 2, "short", "short");
    }
}
