//! Indexes over the watch cache: stored objects that the server itself reads on every request, decoded and indexed
//! once.
//!
//! A [`CacheIndex`] follows some resources in the watch cache and feeds an [`Indexer`]. It guarantees:
//!
//! - **In step.** [`CacheIndex::read`] sees every change that the watch cache has, which includes everything that a
//!   list or
//!   watch has returned and every write of this server. [`CacheIndex::read_fresh`] waits for all writes acknowledged
//!   before.
//! - **Incremental.** A change costs the decoding of one object, paid by the first reader after it; a read without
//!   changes
//!   costs a shared lock.
//! - **Synchronous.** Reading waits for no task and no IO, and nothing is held across an `await`.
//! - **Never stuck.** No background task is involved: an index whose history is compacted is rebuilt from the cache. It
//!   is
//!   complete from [`CacheIndex::new`] on.
//!
//! Changes are applied in the order of their revisions. A document that cannot be decoded counts as absent, and is
//! logged.

use std::sync::{Arc, PoisonError, RwLock};

use api::{Value, convert, schema::Resource};
use store::{CacheWatcher, CachedChange, CachedItem, WatchCache};

use crate::{document, initializers, object_key::ObjectKey};

/// An index that is built from objects.
pub trait Indexer: Send + Sync + 'static {
    /// Inserts or replaces an object, which is in the version of the followed resource.
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value);

    /// Like [`Self::insert_object`], for indexers that keep a part of the document.
    fn insert_item(&mut self, key: ObjectKey<'_>, object: &Value, _item: &CachedItem) {
        self.insert_object(key, object);
    }

    /// Removes an object.
    fn remove_object(&mut self, key: ObjectKey<'_>);

    /// Removes everything; all objects are inserted again.
    fn clear(&mut self);

    /// Runs after a batch of changes, before readers see it.
    fn rebuild(&mut self) {}
}

/// An index over the watch cache.
pub struct CacheIndex<V> {
    cache: Arc<WatchCache>,
    state: RwLock<IndexState<V>>,
}

struct IndexState<V> {
    indexer: V,
    sources: Vec<FollowedResource>,
}

/// A followed resource.
struct FollowedResource {
    resource: &'static Resource,
    prefix: String,
    watcher: CacheWatcher,
}

impl<V: Indexer> CacheIndex<V> {
    /// Builds an index over all objects of some resources.
    pub fn new(
        cache: &Arc<WatchCache>,
        resources: &[&'static Resource],
        indexer: V,
    ) -> Result<Self, store::StoreError> {
        let source = |resource: &&'static Resource| {
            let prefix = document::storage_key(resource, "", "");
            let watcher = cache.watch_prefix(&prefix, cache.cached_snapshot(&prefix).revision)?;
            cache.await_writes(&prefix);
            Ok(FollowedResource { resource, prefix, watcher })
        };
        let sources = resources.iter().map(source).collect::<Result<_, store::StoreError>>()?;
        let mut state = IndexState { indexer, sources };
        state.load(cache)?;
        Ok(Self { cache: cache.clone(), state: RwLock::new(state) })
    }

    /// Calls `look` with the index, which has every change that the cache has.
    pub fn read<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if !state.is_behind() {
                return look(&state.indexer);
            }
        }
        self.catch_up();
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner).indexer)
    }

    /// Like [`Self::read_file`], after waiting for every write acknowledged before. If the store takes too long, the cache's
    /// state is used.
    pub async fn read_fresh<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        if let Err(error) = self.cache.wait_until_synced().await {
            tracing::warn!(%error, "cache index: store is slow, using the state of the watch cache");
        }
        self.catch_up();
        look(&self.state.read().unwrap_or_else(PoisonError::into_inner).indexer)
    }

    /// Replaces the indexer, for tests.
    pub fn set(&mut self, indexer: V) {
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).indexer = indexer;
    }

    fn catch_up(&self) {
        if let Err(error) = self.state.write().unwrap_or_else(PoisonError::into_inner).catch_up(&self.cache) {
            tracing::error!(%error, "cache index: watch failed, the index may be out of date");
        }
    }
}

impl<V: Indexer> IndexState<V> {
    fn is_behind(&self) -> bool {
        self.sources.iter().any(|source| source.watcher.is_behind())
    }

    /// Applies the changes since the last call.
    fn catch_up(&mut self, cache: &WatchCache) -> Result<(), store::StoreError> {
        let mut changes: Vec<(usize, Arc<CachedChange>)> = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            match source.watcher.take_changes(usize::MAX) {
                Ok(taken) => changes.extend(taken.into_iter().map(|change| (at, change))),
                Err(store::StoreError::Compacted { .. }) => return self.load(cache),
                Err(error) => return Err(error),
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        changes.sort_by_key(|(_, change)| change.revision);
        for (at, change) in changes {
            let source = &self.sources[at];
            match &change.item {
                Some(item) => insert_cached(&mut self.indexer, source, item),
                None => drop(source.object_key(change.key()).map(|key| self.indexer.remove_object(key))),
            }
        }
        self.indexer.rebuild();
        Ok(())
    }

    /// Rebuilds the index from the cache.
    fn load(&mut self, cache: &WatchCache) -> Result<(), store::StoreError> {
        self.indexer.clear();
        for source in &mut self.sources {
            let snapshot = cache.cached_snapshot(&source.prefix);
            source.watcher = cache.watch_prefix(&source.prefix, snapshot.revision)?;
            snapshot.items_after(None).for_each(|item| insert_cached(&mut self.indexer, source, item));
        }
        self.indexer.rebuild();
        Ok(())
    }
}

impl FollowedResource {
    /// Parses a storage key.
    fn object_key<'a>(&self, key: &'a str) -> Option<ObjectKey<'a>> {
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let (namespace, name) = if self.resource.is_namespaced() { rest.split_once('/')? } else { ("", rest) };
        Some(ObjectKey { resource: self.resource, namespace, name })
    }
}

fn insert_cached<V: Indexer>(indexer: &mut V, source: &FollowedResource, item: &CachedItem) {
    let Some(key) = source.object_key(&item.record.key) else { return };
    match document::decode_record(&item.record) {
        Ok(object) if initializers::is_pending(&object) => indexer.remove_object(key),
        Ok(object) => indexer.insert_item(key, &convert::convert_to(source.resource, object), item),
        Err(error) => {
            tracing::warn!(key = &*item.record.key, %error, "cache index: cannot decode a stored document, skipping it");
            indexer.remove_object(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use serde_json::json;
    use store::{EmbeddedOptions, EmbeddedStore, HistoryWindow, Precondition, Store, WriteRequest};

    use super::*;
    use crate::{catalog::BuiltInCatalog, loopback};

    #[derive(Default)]
    struct NameIndexer {
        known: BTreeMap<String, String>,
        loads: usize,
    }

    impl Indexer for NameIndexer {
        fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
            let value = api::meta::string_at(object, &["data", "k"]).to_owned();
            self.known.insert(format!("{} {}/{}", key.resource.name, key.namespace, key.name), value);
        }

        fn remove_object(&mut self, key: ObjectKey<'_>) {
            self.known.remove(&format!("{} {}/{}", key.resource.name, key.namespace, key.name));
        }

        fn clear(&mut self) {
            self.known.clear();
            self.loads += 1;
        }
    }

    struct Fixture {
        store: Arc<dyn Store>,
        index: CacheIndex<NameIndexer>,
        _dir: tempfile::TempDir,
    }

    impl Fixture {
        async fn new(window: HistoryWindow) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store: Arc<dyn Store> =
                Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap());
            write(&*store, "/registry/configmaps/a/first", Some("0")).await;
            let cache =
                Arc::new(WatchCache::with_engine(store.clone(), Arc::new(BuiltInCatalog), window).await.unwrap());
            let resources = ["configmaps", "namespaces"].map(|name| loopback::find_resource("", "v1", name).unwrap());
            let index = CacheIndex::new(&cache, &resources, NameIndexer::default()).unwrap();
            Self { store, index, _dir: dir }
        }

        async fn check(&self, want: &[(&str, &str)]) {
            let known = self.index.read_fresh(|names| names.known.clone()).await;
            let known: Vec<(&str, &str)> = known.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(known, want);
        }
    }

    async fn write(store: &dyn Store, key: &str, value: Option<&str>) {
        let kind = if key.contains("configmaps") { "ConfigMap" } else { "Namespace" };
        let object = |value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "data": {"k": value}});
        let precondition = store
            .get(key)
            .await
            .unwrap()
            .map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
        let value = value.map(|value| document::encode_document(&object(value)));
        store.write(WriteRequest { key: key.into(), precondition, value, ttl: None }).await.unwrap();
    }

    #[tokio::test]
    async fn index_follows_the_watch_cache() {
        let world = Fixture::new(HistoryWindow::default()).await;
        world.check(&[("configmaps a/first", "0")]).await;
        write(&*world.store, "/registry/configmaps/a/first", Some("1")).await;
        write(&*world.store, "/registry/namespaces/n", Some("2")).await;
        write(&*world.store, "/registry/secrets/a/other", Some("3")).await;
        world.check(&[("configmaps a/first", "1"), ("namespaces /n", "2")]).await;
        write(&*world.store, "/registry/configmaps/a/first", None).await;
        world.check(&[("namespaces /n", "2")]).await;
        assert_eq!(world.index.read(|names| (names.known.len(), names.loads)), (1, 1), "only changes are taken in");
    }

    #[tokio::test]
    async fn index_with_compacted_history_is_rebuilt() {
        let world =
            Fixture::new(HistoryWindow { keep_for: Duration::ZERO, keep_changes: 1, spare_bytes: 1, keep_bytes: 1 })
                .await;
        for value in 0..300 {
            write(&*world.store, "/registry/configmaps/a/first", Some(&value.to_string())).await;
            write(&*world.store, "/registry/namespaces/n", Some("2")).await;
        }
        world.check(&[("configmaps a/first", "299"), ("namespaces /n", "2")]).await;
        assert!(world.index.read(|names| names.loads) > 1);
    }
}
