//! The watch cache: all documents in memory, by collection, with what selectors look at and the recent changes.
//!
//! It is a layer over any engine. Writes go through; lists are snapshots, watches are positions in a shared history. A
//! read after an acknowledged write sees it; changes come in the order of their revisions, none missing, none twice. What
//! a collection is, and what of a document selectors look at, the caller says in a [`Catalog`].

mod as_store;
mod check;
mod collection;
mod feed;
mod history;
mod item;
mod marks;
mod runs;
mod watcher;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
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
    check::Checked,
    collection::Snapshot,
    item::{Change, Item},
    marks::Marks,
    runs::Written,
    watcher::Watcher,
};
use self::{collection::Collection, history::History};
use crate::{Error, Range, Record, Revision, Store, Window};

/// How long a read waits for the cache to reach the engine before it asks the engine itself.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often the engine is asked for progress meanwhile.
const ASKS_EVERY: Duration = Duration::from_millis(100);

/// What the cache must know of keys and documents.
pub trait Catalog: Send + Sync + 'static {
    /// The part of a key, or of a prefix of keys, that names its collection. `None`: it is in none, and not cached.
    fn collection<'k>(&self, key: &'k str) -> Option<&'k str>;

    /// What selectors look at, read when a document enters the cache.
    fn marks(&self, key: &str, value: &Bytes) -> Marks;
}

/// Which state a list shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Whatever the cache has.
    Any,
    /// Every write that was acknowledged before.
    Newest,
    /// This revision, or a later one.
    NotBefore(Revision),
    /// This revision.
    Exactly(Revision),
}

/// A store with everything in memory.
pub struct Cache {
    shared: Arc<Shared>,
    engine: Arc<dyn Store>,
    feed: JoinHandle<()>,
    /// Collections that decisions rest on.
    followed: RwLock<HashSet<Box<str>>>,
}

/// What readers and the feed share. Only the feed changes it.
struct Shared {
    catalog: Arc<dyn Catalog>,
    collections: RwLock<HashMap<Box<str>, Arc<Collection>>>,
    /// The revision that was loaded: a collection that was never heard of has no history before it.
    began: AtomicU64,
    /// Everything up to here is in the collections.
    published: watch::Sender<Revision>,
    history: Mutex<History>,
    /// Makes the engine tell how far it is.
    nudge: Arc<Notify>,
}

impl Cache {
    /// Loads everything that is in `engine`, and follows it from then on.
    pub async fn over(engine: Arc<dyn Store>, catalog: Arc<dyn Catalog>, window: Window) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            catalog,
            collections: RwLock::default(),
            began: AtomicU64::new(0),
            published: watch::Sender::new(0),
            history: Mutex::new(History::new(window)),
            nudge: Arc::default(),
        });
        feed::load(&shared, &*engine).await?;
        // The feed does not keep the engine open.
        let feed = tokio::spawn(feed::run(shared.clone(), Arc::downgrade(&engine)));
        let cache = Self { shared, engine, feed, followed: RwLock::default() };
        cache.is_fresh().await?;
        Ok(cache)
    }

    /// The items under a prefix of one collection, all as of one revision.
    pub async fn snapshot(&self, prefix: &str, at: At) -> Result<Snapshot, Error> {
        let Some(collection) = self.shared.collection_of(prefix) else { return self.ask_engine(prefix, at).await };
        match at {
            At::Any => {}
            At::Newest => {
                if !self.is_fresh().await? {
                    return self.ask_engine(prefix, at).await;
                }
            }
            At::NotBefore(revision) | At::Exactly(revision) => {
                if !self.has_reached(revision).await? {
                    return self.ask_engine(prefix, at).await;
                }
            }
        }
        match at {
            At::Exactly(revision) => match collection.at(prefix, revision) {
                // Its history may be longer than ours.
                Err(Error::Compacted { .. }) => self.ask_engine(prefix, at).await,
                snapshot => snapshot,
            },
            _ => Ok(collection.now(prefix, self.shared.published())),
        }
    }

    /// The items under a prefix of one collection that the cache has, without waiting; none where there is no collection.
    pub fn now(&self, prefix: &str) -> Snapshot {
        let published = self.shared.published();
        match self.shared.collection_of(prefix) {
            Some(collection) => collection.now(prefix, published),
            None => Snapshot::new(std::iter::empty(), prefix, published),
        }
    }

    /// Waits until every write that was acknowledged before is here. `false`: it takes too long.
    pub async fn freshen(&self) -> Result<bool, Error> {
        self.is_fresh().await
    }

    /// Says that decisions rest on what the cache has under a prefix: writers there wait for [`Self::is_shown`].
    pub fn follow(&self, prefix: &str) {
        if let Some(name) = self.shared.catalog.collection(prefix) {
            self.followed.write().unwrap_or_else(PoisonError::into_inner).insert(name.into());
        }
    }

    /// Waits until a write of a key that is followed is here. What takes too long is not waited for.
    pub async fn is_shown(&self, key: &str, revision: Revision) -> bool {
        let name = self.shared.catalog.collection(key);
        let followed = |name| self.followed.read().unwrap_or_else(PoisonError::into_inner).contains(name);
        !name.is_some_and(followed) || self.wait(revision).await.unwrap_or(false)
    }

    /// Keeps a snapshot at hand for the next page of the list that was begun with it.
    pub fn keep(&self, prefix: &str, snapshot: &Snapshot) {
        if let Some(collection) = self.shared.collection_of(prefix) {
            collection.keep(snapshot);
        }
    }

    /// The changes under a prefix of one collection after a revision, which may still lie ahead.
    pub fn watch(&self, prefix: &str, after: Revision) -> Result<Watcher, Error> {
        let collection = self.shared.collection_of(prefix);
        let collection = collection.ok_or_else(|| Error::Unusable(format!("{prefix} is in no collection")))?;
        let newest = collection.subscribe();
        let mut watcher =
            Watcher { shared: self.shared.clone(), collection, newest, prefix: prefix.into(), cursor: after };
        // Says now what it would say later.
        watcher.take(0)?;
        Ok(watcher)
    }

    /// The store that it is over.
    pub fn engine(&self) -> &Arc<dyn Store> {
        &self.engine
    }

    /// Up to which revision the cache has everything.
    pub fn revision_at_hand(&self) -> Revision {
        self.shared.published()
    }

    async fn ask_engine(&self, prefix: &str, at: At) -> Result<Snapshot, Error> {
        let exactly = if let At::Exactly(revision) = at { Some(revision) } else { None };
        let page = self.engine.list(Range { prefix: prefix.to_owned(), at: exactly, ..Range::default() }).await?;
        if let At::NotBefore(requested) = at
            && requested > page.revision
        {
            return Err(Error::Future { requested, current: page.revision });
        }
        let items = page.records.into_iter().map(|record| self.shared.item(record));
        Ok(Snapshot::new(items, prefix, page.revision))
    }

    /// Waits until every write that was acknowledged before is here. `false`: it takes too long.
    async fn is_fresh(&self) -> Result<bool, Error> {
        let needed = self.engine.revision().await?;
        self.wait(needed).await
    }

    /// Waits until a revision that the engine has reached is here.
    async fn has_reached(&self, revision: Revision) -> Result<bool, Error> {
        if self.shared.published() >= revision {
            return Ok(true);
        }
        let current = self.engine.revision().await?;
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        self.wait(revision).await
    }

    async fn wait(&self, needed: Revision) -> Result<bool, Error> {
        if self.shared.published() >= needed {
            return Ok(true);
        }
        let mut published = self.shared.published.subscribe();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.engine.tells_progress() {
                self.shared.nudge.notify_one();
            }
            let reached = published.wait_for(|published| *published >= needed);
            if timeout(ASKS_EVERY, reached).await.is_ok() {
                return Ok(true);
            }
            if !self.engine.tells_progress() {
                break;
            }
        }
        Ok(false)
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.feed.abort();
    }
}

impl Shared {
    fn published(&self) -> Revision {
        *self.published.borrow()
    }

    fn publish(&self, reached: Revision) {
        self.published.send_if_modified(|published| {
            let news = reached > *published;
            *published = reached.max(*published);
            news
        });
    }

    // A poisoned lock is taken as it is: nothing is left half-made under it.
    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn item(&self, record: Record) -> Item {
        let marks = self.catalog.marks(&record.key, &record.value);
        Item::new(record, marks)
    }

    /// The collection that a prefix is in.
    fn collection_of(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.catalog.collection(prefix).map(|name| self.collection(name))
    }

    fn collection(&self, name: &str) -> Arc<Collection> {
        if let Some(collection) = self.collections.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return collection.clone();
        }
        let mut collections = self.collections.write().unwrap_or_else(PoisonError::into_inner);
        let began = self.began.load(Ordering::SeqCst);
        collections.entry(name.into()).or_insert_with(|| Arc::new(Collection::new(began))).clone()
    }

    fn collections(&self) -> Vec<(Box<str>, Arc<Collection>)> {
        let collections = self.collections.read().unwrap_or_else(PoisonError::into_inner);
        collections.iter().map(|(name, collection)| (name.clone(), collection.clone())).collect()
    }

    /// Begins anew with what was loaded.
    fn replace(&self, mut loaded: HashMap<Box<str>, Vec<Arc<Item>>>, revision: Revision) {
        self.began.store(revision, Ordering::SeqCst);
        self.history().clear();
        for name in loaded.keys() {
            self.collection(name);
        }
        for (name, collection) in self.collections() {
            collection.replace(loaded.remove(&name).unwrap_or_default(), revision);
        }
        self.publish(revision);
    }
}
