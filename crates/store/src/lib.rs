//! Revisioned documents: the storage of the API server.
//!
//! A [`Store`] maps keys to documents (opaque bytes) and gives every write the next revision. An acknowledged write
//! survives `kill -9` and power loss; a watcher receives every change after its start revision exactly once and in order,
//! or [`StoreError::Compacted`].

mod cache;
mod embedded;
mod encryption;
mod etcd;
mod guaranteed_update;
mod history_window;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::Notify;

pub use cache::{
    CacheWatcher, CachedChange, CachedItem, CollectionCatalog, ConsistencyReport, EncodedBatch, ResourceVersionMatch,
    SelectableFields, SelectionBloomFilter, Snapshot, WatchCache,
};
pub use embedded::{CopyProgress, DelayedSync, EmbeddedOptions, EmbeddedStore, StoreContents, VerifyReport, medium};
pub use encryption::{EncryptedStore, EncryptionConfig};
pub use etcd::{EtcdOptions, EtcdStore, KeyLayout};
pub use guaranteed_update::{UpdateAction, guaranteed_update};
pub use history_window::HistoryWindow;

/// The number of a write. It only grows; 0 means "before the first write".
pub type Revision = u64;

/// The current document under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, for example `/registry/apps/deployments/default/nginx`.
    pub key: Arc<str>,
    /// The document; shared, never copied.
    pub value: Bytes,
    /// The revision of the last write.
    pub revision: Revision,
}

/// A condition on the key of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The key does not exist.
    Absent,
    /// The key was last written at this revision.
    Revision(Revision),
}

/// A conditional write.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// The key to write.
    pub key: Arc<str>,
    /// The condition, checked atomically with the write.
    pub precondition: Precondition,
    /// The new document; `None` deletes the key.
    pub value: Option<Bytes>,
    /// The document is deleted this long after the write, unless it is written again before.
    pub ttl: Option<Duration>,
}

/// The range and the revision of a list.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Only keys after this one; where the page before ended.
    pub after: Option<String>,
    /// At most this many; `None`: all.
    pub limit: Option<usize>,
    /// As of this revision; `None`: now.
    pub at: Option<Revision>,
}

/// The records of one list, all as of one revision.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// In the order of their keys.
    pub records: Vec<Record>,
    /// The revision that the whole page is true for.
    pub revision: Revision,
    /// The number of records after the last one.
    pub remaining: usize,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The revision of the change.
    pub revision: Revision,
    /// The changed key.
    pub key: Arc<str>,
    /// The document after the change; `None`: the key was deleted.
    pub value: Option<Bytes>,
    /// The record before the change; `None`: the key was created.
    pub previous: Option<Record>,
}

/// An error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The precondition of a write does not hold; the record is unchanged.
    #[error("{key}: the precondition {precondition:?} does not hold")]
    Conflict {
        /// The key of the write.
        key: Arc<str>,
        /// The precondition that failed.
        precondition: Precondition,
        /// The current record, if any.
        current: Option<Record>,
    },
    /// The history before `oldest` is compacted.
    #[error("revision {requested} is compacted; the oldest kept is {oldest}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The first revision that can still be read.
        oldest: Revision,
    },
    /// A revision that the store has not reached.
    #[error("revision {requested} is in the future; the current one is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The data cannot be used. The message names the file and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The engine failed to read or write; nothing was acknowledged.
    #[error("the store failed: {0}")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Events after a revision, in order, none missing. It ends after the first error.
pub type EventStream = BoxStream<'static, Result<StoreEvent, StoreError>>;

/// Options of a watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Only keys that begin with this.
    pub prefix: String,
    /// Only changes after this revision.
    pub after: Revision,
    /// Sends a progress notification this long after the last item, if the store's revision has moved on.
    pub progress_interval: Option<Duration>,
    /// Notified by the consumer to request progress at once; see [`Store::supports_progress_requests`].
    pub progress_request: Option<Arc<Notify>>,
}

/// An item of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// The next change.
    Event(StoreEvent),
    /// Every change up to this revision has been delivered.
    Progress(Revision),
}

/// Like [`EventStream`], with progress notifications.
pub type WatchItems = BoxStream<'static, Result<WatchItem, StoreError>>;

/// A revisioned map from keys to documents.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The record under `key`, if there is one.
    async fn get(&self, key: &str) -> Result<Option<Record>, StoreError>;

    /// The records in a range, consistent as of one revision.
    async fn list(&self, range: ListOptions) -> Result<ListPage, StoreError>;

    /// Writes if the precondition holds, and returns the write's revision once it is durable.
    async fn write(&self, write: WriteRequest) -> Result<Revision, StoreError>;

    /// Watches the keys under a prefix after a revision, past changes first, with progress notifications.
    async fn watch_items(&self, follow: WatchOptions) -> Result<WatchItems, StoreError>;

    /// Watches the keys under `prefix` after revision `after`, past changes first.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<EventStream, StoreError> {
        let notices =
            self.watch_items(WatchOptions { prefix: prefix.into(), after, ..WatchOptions::default() }).await?;
        let events = notices.filter_map(|notice| async {
            match notice {
                Ok(WatchItem::Event(event)) => Some(Ok(event)),
                Ok(WatchItem::Progress(_)) => None,
                Err(error) => Some(Err(error)),
            }
        });
        Ok(events.boxed())
    }

    /// The newest revision that can be read.
    async fn revision(&self) -> Result<Revision, StoreError>;

    /// Compacts the history up to and including `through`; current records stay.
    async fn compact(&self, through: Revision) -> Result<(), StoreError>;

    /// Fails if the store cannot be written.
    async fn check_health(&self) -> Result<(), StoreError>;

    /// The disk space it takes, in bytes.
    async fn disk_usage(&self) -> Result<u64, StoreError>;

    /// Whether a progress request is answered promptly.
    fn supports_progress_requests(&self) -> bool {
        true
    }
}
