//! Watching the cache: a watcher is a position in the history of one collection, not a buffer of its own.
//!
//! A slow watcher therefore costs nothing; when the history is forgotten past its position it ends with
//! [`StoreError::Compacted`].

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    CacheState,
    collection::{CachedCollection, ScanRequest},
    encoded_batches::{BatchKey, EncodedBatch},
    item::CachedChange,
};
use crate::{Revision, StoreError};

/// The changes of one collection, or of a part of it, after a revision.
pub struct CacheWatcher {
    pub(super) shared: Arc<CacheState>,
    pub(super) collection: Arc<CachedCollection>,
    pub(super) newest: watch::Receiver<Revision>,
    pub(super) prefix: Box<str>,
    pub(super) cursor: Revision,
}

impl CacheWatcher {
    /// Takes up to `limit` changes without waiting.
    pub fn take_changes(&mut self, limit: usize) -> Result<Vec<Arc<CachedChange>>, StoreError> {
        // Marked as seen before looking: what comes after the look then ends `changed`.
        self.newest.borrow_and_update();
        let published = self.shared.published();
        let mut out = Vec::new();
        let look = ScanRequest { cursor: self.cursor, prefix: &self.prefix, limit, published };
        self.cursor = self.collection.scan_changes(look, &mut out)?;
        Ok(out)
    }

    /// Takes up to `limit` changes as one batch that `write` encodes. Watchers with the same prefix, cursor and encoding name
    /// share the batch of the first of them.
    pub fn take_encoded(
        &mut self,
        limit: usize,
        name: &Arc<str>,
        write: impl FnOnce(&[Arc<CachedChange>]) -> Result<EncodedBatch, StoreError>,
    ) -> Result<EncodedBatch, StoreError> {
        let (collection, prefix) = (self.collection.clone(), self.prefix.clone());
        let of = BatchKey { name, prefix: &prefix, after: self.cursor };
        let (written, until) = collection.batches.get_or_encode(of, || {
            let changes = self.take_changes(limit)?;
            Ok::<_, StoreError>((write(&changes)?, self.cursor))
        })?;
        if until > self.cursor {
            // The newest revision stays unseen: more changes may follow the batch.
            self.cursor = until;
        }
        Ok(written)
    }

    /// Whether the next batch is cached already.
    pub fn is_encoded(&self, name: &Arc<str>) -> bool {
        self.collection.batches.contains_key(BatchKey { name, prefix: &self.prefix, after: self.cursor })
    }

    /// Whether something in the collection changed since the last [`CacheWatcher::take_changes`].
    pub fn is_behind(&self) -> bool {
        // The collection, which we hold, has the other end.
        self.newest.has_changed().unwrap_or(false)
    }

    /// Waits until something in the collection changed since the last [`CacheWatcher::take_changes`].
    pub async fn wait_for_change(&mut self) {
        // The collection, which we hold, has the other end.
        let _ = self.newest.changed().await;
    }

    /// The number of watchers of the same collection.
    pub fn watcher_count(&self) -> usize {
        self.collection.watcher_count()
    }

    /// Moves the cursor past changes outside of the prefix, up to the next one within it.
    pub fn advance_cursor(&mut self) -> Result<Revision, StoreError> {
        let published = self.shared.published();
        let mut none = Vec::new();
        let look = ScanRequest { cursor: self.cursor, prefix: &self.prefix, limit: 0, published };
        self.cursor = self.collection.scan_changes(look, &mut none)?;
        Ok(self.cursor)
    }

    /// Every change up to here was taken.
    pub fn cursor(&self) -> Revision {
        self.cursor
    }
}
