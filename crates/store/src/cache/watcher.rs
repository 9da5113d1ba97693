//! Watching the cache: a watcher is a position in the history of one collection, not a buffer of its own.
//!
//! A slow watcher therefore costs nothing; when the history is forgotten past its position it ends with
//! [`Error::Compacted`].

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    Shared,
    collection::{Collection, Look},
    item::Change,
    runs::{Of, Written},
};
use crate::{Error, Revision};

/// The changes of one collection, or of a part of it, after a revision.
pub struct Watcher {
    pub(super) shared: Arc<Shared>,
    pub(super) collection: Arc<Collection>,
    pub(super) newest: watch::Receiver<Revision>,
    pub(super) prefix: Box<str>,
    pub(super) cursor: Revision,
}

impl Watcher {
    /// Takes the next changes, up to so many, without waiting.
    pub fn take(&mut self, limit: usize) -> Result<Vec<Arc<Change>>, Error> {
        // Marked as seen before looking: what comes after the look then ends `changed`.
        self.newest.borrow_and_update();
        let published = self.shared.published();
        let mut out = Vec::new();
        let look = Look { cursor: self.cursor, prefix: &self.prefix, limit, published };
        self.cursor = self.collection.scan(look, &mut out)?;
        Ok(out)
    }

    /// Takes the next changes, up to so many, as `write` puts them together. Watchers of the same part of the collection that
    /// stand at the same place and ask under the same name share what the first of them wrote.
    pub fn take_written(
        &mut self,
        limit: usize,
        name: &Arc<str>,
        write: impl FnOnce(&[Arc<Change>]) -> Result<Written, Error>,
    ) -> Result<Written, Error> {
        let (collection, prefix) = (self.collection.clone(), self.prefix.clone());
        let of = Of { name, prefix: &prefix, after: self.cursor };
        let (written, until) = collection.runs.get(of, || {
            let changes = self.take(limit)?;
            Ok::<_, Error>((write(&changes)?, self.cursor))
        })?;
        if until > self.cursor {
            // Nothing is marked as seen: there may be more after the run.
            self.cursor = until;
        }
        Ok(written)
    }

    /// Whether somebody has put together what comes next.
    pub fn is_written(&self, name: &Arc<str>) -> bool {
        self.collection.runs.has(Of { name, prefix: &self.prefix, after: self.cursor })
    }

    /// Whether something in the collection changed since the last [`Watcher::take`].
    pub fn is_behind(&self) -> bool {
        // The collection, which we hold, has the other end.
        self.newest.has_changed().unwrap_or(false)
    }

    /// Waits until something in the collection changed since the last [`Watcher::take`].
    pub async fn changed(&mut self) {
        // The collection, which we hold, has the other end.
        let _ = self.newest.changed().await;
    }

    /// How many watch the same collection.
    pub fn watchers(&self) -> usize {
        self.collection.watchers()
    }

    /// Up to where there is nothing to take; [`Watcher::cursor`] moves there.
    pub fn look(&mut self) -> Result<Revision, Error> {
        let published = self.shared.published();
        let mut none = Vec::new();
        let look = Look { cursor: self.cursor, prefix: &self.prefix, limit: 0, published };
        self.cursor = self.collection.scan(look, &mut none)?;
        Ok(self.cursor)
    }

    /// Every change up to here was taken.
    pub fn cursor(&self) -> Revision {
        self.cursor
    }
}
