//! The watch cache: all documents in memory, by collection, with their selectable fields and recent changes.
//!
//! It is a layer over any engine. Writes pass through; lists are snapshots, watches are positions in a shared history. A
//! read after an acknowledged write sees it; changes come in the order of their revisions, exactly once. The caller's
//! [`CollectionCatalog`] maps keys to collections and extracts selectable fields.

mod as_store;
mod bloom_filter;
mod collection;
mod consistency;
mod encoded_batches;
mod history;
mod item;
mod reflector;
mod selectable_fields;
mod watcher;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};

pub use self::{
    bloom_filter::SelectionBloomFilter,
    collection::Snapshot,
    consistency::ConsistencyReport,
    encoded_batches::EncodedBatch,
    item::{CachedChange, CachedItem},
    selectable_fields::SelectableFields,
    watcher::CacheWatcher,
};
use self::{collection::CachedCollection, history::ChangeHistory};
use crate::{HistoryWindow, ListOptions, Record, Revision, Store, StoreError};

/// Time that a read waits for the cache to reach the engine's revision before it reads from the engine.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// Interval of progress requests to the engine meanwhile.
const PROGRESS_REQUEST_INTERVAL: Duration = Duration::from_millis(100);

/// Interval after which the revisions of the interval before cannot be listed any more. kube-apiserver compacts etcd in this
/// rhythm, so that a continue token is good for five to ten minutes.
const LISTED_REVISIONS_INTERVAL: Duration = Duration::from_secs(300);

/// Maps keys to collections and extracts selectable fields.
pub trait CollectionCatalog: Send + Sync + 'static {
    /// The part of a key, or of a prefix of keys, that names its collection. `None`: it is not cached.
    fn collection_name<'k>(&self, key: &'k str) -> Option<&'k str>;

    /// Extracts labels and selectable fields when a document enters the cache.
    fn selectable_fields(&self, key: &str, value: &Bytes) -> SelectableFields;
}

/// The state that a list returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// Any state that is cached.
    Any,
    /// All writes that were acknowledged before.
    Newest,
    /// This revision, or a later one.
    NotBefore(Revision),
    /// This revision.
    Exactly(Revision),
}

/// Expires listed revisions until the cache is dropped.
async fn run_list_expiry(state: Weak<CacheState>) {
    loop {
        tokio::time::sleep(LISTED_REVISIONS_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        state.expire_listed_revisions();
    }
}

/// A store with everything in memory.
pub struct WatchCache {
    shared: Arc<CacheState>,
    engine: Arc<dyn Store>,
    reflector: JoinHandle<()>,
    /// Collections whose writers wait until the cache has observed their write.
    awaited_collections: RwLock<HashSet<Box<str>>>,
}

/// State shared by readers and the reflector; only the reflector changes it.
struct CacheState {
    catalog: Arc<dyn CollectionCatalog>,
    collections: RwLock<HashMap<Box<str>, Arc<CachedCollection>>>,
    /// The revision of the initial load: a new collection has no history before it.
    loaded_revision: AtomicU64,
    /// Everything up to here is in the collections.
    published: watch::Sender<Revision>,
    history: Mutex<ChangeHistory>,
    /// Requests a progress notification from the engine.
    progress_request: Arc<Notify>,
    /// Lists of revisions before this one are refused.
    oldest_listed: AtomicU64,
    /// The revision when they were last expired.
    last_expiry: AtomicU64,
}

impl WatchCache {
    /// Loads all records of `engine` and watches it from then on.
    pub async fn with_engine(
        engine: Arc<dyn Store>,
        catalog: Arc<dyn CollectionCatalog>,
        window: HistoryWindow,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(CacheState {
            catalog,
            collections: RwLock::default(),
            loaded_revision: AtomicU64::new(0),
            published: watch::Sender::new(0),
            history: Mutex::new(ChangeHistory::new(window)),
            progress_request: Arc::default(),
            oldest_listed: AtomicU64::new(0),
            last_expiry: AtomicU64::new(0),
        });
        reflector::load_collections(&shared, &*engine).await?;
        // The reflector does not keep the engine open.
        let feed = tokio::spawn(reflector::run_reflector(shared.clone(), Arc::downgrade(&engine)));
        tokio::spawn(run_list_expiry(Arc::downgrade(&shared)));
        let cache = Self { shared, engine, reflector: feed, awaited_collections: RwLock::default() };
        cache.wait_until_fresh().await?;
        Ok(cache)
    }

    /// Expires listed revisions as every interval does: a second call refuses lists of what the first one saw.
    pub fn expire_listed_revisions(&self) {
        self.shared.expire_listed_revisions();
    }

    /// The items under a prefix of one collection, all as of one revision.
    pub async fn snapshot(&self, prefix: &str, at: ResourceVersionMatch) -> Result<Snapshot, StoreError> {
        let Some(collection) = self.shared.collection_for_prefix(prefix) else {
            return self.list_from_engine(prefix, at).await;
        };
        match at {
            ResourceVersionMatch::Any => {}
            ResourceVersionMatch::Newest => {
                if !self.wait_until_fresh().await? {
                    return self.list_from_engine(prefix, at).await;
                }
            }
            ResourceVersionMatch::NotBefore(revision) | ResourceVersionMatch::Exactly(revision) => {
                if !self.wait_for_revision(revision).await? {
                    return self.list_from_engine(prefix, at).await;
                }
            }
        }
        match at {
            ResourceVersionMatch::Exactly(revision) if revision < self.shared.oldest_listed() => {
                Err(StoreError::Compacted { requested: revision, oldest: self.shared.oldest_listed() })
            }
            ResourceVersionMatch::Exactly(revision) => match collection.snapshot_at(prefix, revision) {
                // The engine's history may be longer than the cache's.
                Err(StoreError::Compacted { .. }) => self.list_from_engine(prefix, at).await,
                snapshot => snapshot,
            },
            _ => Ok(collection.newest_snapshot(prefix, self.shared.published())),
        }
    }

    /// The cached items under a prefix of one collection, without waiting; empty for an unknown collection.
    pub fn cached_snapshot(&self, prefix: &str) -> Snapshot {
        let published = self.shared.published();
        match self.shared.collection_for_prefix(prefix) {
            Some(collection) => collection.newest_snapshot(prefix, published),
            None => Snapshot::new(std::iter::empty(), prefix, published),
        }
    }

    /// Waits until all writes acknowledged before are cached; `false` after three seconds.
    pub async fn wait_until_synced(&self) -> Result<bool, StoreError> {
        self.wait_until_fresh().await
    }

    /// Declares that decisions rest on the cached items under a prefix: writers there call [`Self::wait_until_cached`].
    pub fn await_writes(&self, prefix: &str) {
        if let Some(name) = self.shared.catalog.collection_name(prefix) {
            self.awaited_collections.write().unwrap_or_else(PoisonError::into_inner).insert(name.into());
        }
    }

    /// Waits until the watch cache contains `revision` of `key`; `false` after three seconds. Returns at once for collections
    /// without [`Self::await_writes`].
    pub async fn wait_until_cached(&self, key: &str, revision: Revision) -> bool {
        let name = self.shared.catalog.collection_name(key);
        let followed = |name| self.awaited_collections.read().unwrap_or_else(PoisonError::into_inner).contains(name);
        !name.is_some_and(followed) || self.wait_until_published(revision).await.unwrap_or(false)
    }

    /// Keeps a snapshot for the next page of its list.
    pub fn keep_snapshot(&self, prefix: &str, snapshot: &Snapshot) {
        if let Some(collection) = self.shared.collection_for_prefix(prefix) {
            collection.keep_snapshot(snapshot);
        }
    }

    /// The changes under a prefix of one collection after a revision, which may still lie ahead.
    pub fn watch_prefix(&self, prefix: &str, after: Revision) -> Result<CacheWatcher, StoreError> {
        let collection = self.shared.collection_for_prefix(prefix);
        let collection = collection.ok_or_else(|| StoreError::Unusable(format!("{prefix} is in no collection")))?;
        let newest = collection.subscribe();
        let mut watcher =
            CacheWatcher { shared: self.shared.clone(), collection, newest, prefix: prefix.into(), cursor: after };
        // Fails now if the revision is compacted.
        watcher.take_changes(0)?;
        Ok(watcher)
    }

    /// The store below the cache.
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.engine
    }

    /// The revision up to which the cache is complete.
    pub fn cached_revision(&self) -> Revision {
        self.shared.published()
    }

    async fn list_from_engine(&self, prefix: &str, at: ResourceVersionMatch) -> Result<Snapshot, StoreError> {
        let exactly = if let ResourceVersionMatch::Exactly(revision) = at { Some(revision) } else { None };
        let page =
            self.engine.list(ListOptions { prefix: prefix.to_owned(), at: exactly, ..ListOptions::default() }).await?;
        if let ResourceVersionMatch::NotBefore(requested) = at
            && requested > page.revision
        {
            return Err(StoreError::Future { requested, current: page.revision });
        }
        let items = page.records.into_iter().map(|record| self.shared.build_item(record));
        Ok(Snapshot::new(items, prefix, page.revision))
    }

    /// Waits until all writes acknowledged before are cached; `false` after three seconds.
    async fn wait_until_fresh(&self) -> Result<bool, StoreError> {
        let needed = self.engine.revision().await?;
        self.wait_until_published(needed).await
    }

    /// Waits until a revision that the engine has reached is cached; `false` after three seconds.
    async fn wait_for_revision(&self, revision: Revision) -> Result<bool, StoreError> {
        if self.shared.published() >= revision {
            return Ok(true);
        }
        let current = self.engine.revision().await?;
        if revision > current {
            return Err(StoreError::Future { requested: revision, current });
        }
        self.wait_until_published(revision).await
    }

    async fn wait_until_published(&self, needed: Revision) -> Result<bool, StoreError> {
        if self.shared.published() >= needed {
            return Ok(true);
        }
        let mut published = self.shared.published.subscribe();
        let deadline = Instant::now() + MAX_WAIT;
        while Instant::now() < deadline {
            if self.engine.supports_progress_requests() {
                self.shared.progress_request.notify_one();
            }
            let reached = published.wait_for(|published| *published >= needed);
            if timeout(PROGRESS_REQUEST_INTERVAL, reached).await.is_ok() {
                return Ok(true);
            }
            if !self.engine.supports_progress_requests() {
                break;
            }
        }
        Ok(false)
    }
}

impl Drop for WatchCache {
    fn drop(&mut self) {
        self.reflector.abort();
    }
}

impl CacheState {
    fn published(&self) -> Revision {
        *self.published.borrow()
    }

    /// Refuses lists of revisions before the last expiry from now on. Watches may still start there.
    fn expire_listed_revisions(&self) {
        let last = self.last_expiry.swap(self.published(), Ordering::Relaxed);
        self.oldest_listed.store(last, Ordering::Relaxed);
    }

    fn oldest_listed(&self) -> Revision {
        self.oldest_listed.load(Ordering::Relaxed)
    }

    fn publish_revision(&self, reached: Revision) {
        self.published.send_if_modified(|published| {
            let news = reached > *published;
            *published = reached.max(*published);
            news
        });
    }

    // A poisoned lock is taken as it is: nothing is left half-made under it.
    fn history(&self) -> MutexGuard<'_, ChangeHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn build_item(&self, record: Record) -> CachedItem {
        let marks = self.catalog.selectable_fields(&record.key, &record.value);
        CachedItem::new(record, marks)
    }

    /// The collection that a prefix is in.
    fn collection_for_prefix(&self, prefix: &str) -> Option<Arc<CachedCollection>> {
        self.catalog.collection_name(prefix).map(|name| self.collection_by_name(name))
    }

    fn collection_by_name(&self, name: &str) -> Arc<CachedCollection> {
        if let Some(collection) = self.collections.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return collection.clone();
        }
        let mut collections = self.collections.write().unwrap_or_else(PoisonError::into_inner);
        let began = self.loaded_revision.load(Ordering::SeqCst);
        collections.entry(name.into()).or_insert_with(|| Arc::new(CachedCollection::new(began))).clone()
    }

    fn collections(&self) -> Vec<(Box<str>, Arc<CachedCollection>)> {
        let collections = self.collections.read().unwrap_or_else(PoisonError::into_inner);
        collections.iter().map(|(name, collection)| (name.clone(), collection.clone())).collect()
    }

    /// Replaces all collections by the loaded items.
    fn replace_all(&self, mut loaded: HashMap<Box<str>, Vec<Arc<CachedItem>>>, revision: Revision) {
        self.loaded_revision.store(revision, Ordering::SeqCst);
        self.history().clear();
        for name in loaded.keys() {
            self.collection_by_name(name);
        }
        for (name, collection) in self.collections() {
            collection.replace_items(loaded.remove(&name).unwrap_or_default(), revision);
        }
        self.publish_revision(revision);
    }
}
