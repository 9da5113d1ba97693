//! Views: what the server itself must know of stored objects at every request, decoded and indexed once.
//!
//! A [`CacheIndex`] follows some resources in the watch cache and keeps a [`Indexer`] of them. It guarantees:
//!
//! - **In step.** [`CacheIndex::read`] sees every change that the watch cache has, so whatever a list or a watch has shown to
//!   anybody, and whatever this server has acknowledged. [`CacheIndex::fresh`] waits until that is every write acknowledged before.
//! - **Incremental.** A change costs the decoding of one object, paid by the first reader after it; a read without news
//!   costs a lock that readers share.
//! - **Synchronous.** Reading waits for no task and no IO, and nothing is held across an `await`.
//! - **Never stuck.** There is no task that could die: a view that nobody read for so long that the history is gone is built
//!   anew from what the cache holds. It is complete from [`CacheIndex::new`] on.
//!
//! Changes are applied in the order of their revisions. A document that cannot be read is as good as absent, and logged.

use std::sync::{Arc, PoisonError, RwLock};

use api::{Value, convert, schema::Resource};
use store::{CacheWatcher, CachedChange, CachedItem, WatchCache};

use crate::{document, initializers, loopback::ObjectKey};

/// What is kept of objects.
pub trait Indexer: Send + Sync + 'static {
    /// An object is new or has changed. It is in the version of the resource that is followed.
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value);

    /// As [`Self::insert_object`], for who keeps a part of the document as it is.
    fn insert_item(&mut self, place: ObjectKey<'_>, object: &Value, _item: &CachedItem) {
        self.insert_object(place, object);
    }

    /// An object is gone.
    fn remove_object(&mut self, place: ObjectKey<'_>);

    /// Forget everything: all objects are put again.
    fn clear(&mut self);

    /// Some changes were made and readers come next.
    fn rebuild(&mut self) {}
}

/// A view that follows its objects.
pub struct CacheIndex<V> {
    cache: Arc<WatchCache>,
    held: RwLock<Held<V>>,
}

struct Held<V> {
    view: V,
    sources: Vec<Source>,
}

/// One resource that is followed.
struct Source {
    resource: &'static Resource,
    prefix: String,
    watcher: CacheWatcher,
}

impl<V: Indexer> CacheIndex<V> {
    /// A view of all objects of some resources.
    pub fn new(cache: &Arc<WatchCache>, resources: &[&'static Resource], view: V) -> Result<Self, store::StoreError> {
        let source = |resource: &&'static Resource| {
            let prefix = document::storage_key(resource, "", "");
            let watcher = cache.watch_prefix(&prefix, cache.cached_snapshot(&prefix).revision)?;
            cache.await_writes(&prefix);
            Ok(Source { resource, prefix, watcher })
        };
        let sources = resources.iter().map(source).collect::<Result<_, store::StoreError>>()?;
        let mut held = Held { view, sources };
        held.load(cache)?;
        Ok(Self { cache: cache.clone(), held: RwLock::new(held) })
    }

    /// Looks at the view, which has everything that the cache has.
    pub fn read<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        {
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            if !held.is_behind() {
                return look(&held.view);
            }
        }
        self.catch_up();
        look(&self.held.read().unwrap_or_else(PoisonError::into_inner).view)
    }

    /// As [`Self::read`], once every write that was acknowledged before is there. Where the store takes too long, what the
    /// cache has must do.
    pub async fn read_fresh<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        if let Err(error) = self.cache.wait_until_synced().await {
            tracing::warn!(%error, "a view may be behind the store");
        }
        self.catch_up();
        look(&self.held.read().unwrap_or_else(PoisonError::into_inner).view)
    }

    /// Puts another view in place, for tests that make one by hand.
    pub fn set(&mut self, view: V) {
        self.held.get_mut().unwrap_or_else(PoisonError::into_inner).view = view;
    }

    fn catch_up(&self) {
        if let Err(error) = self.held.write().unwrap_or_else(PoisonError::into_inner).catch_up(&self.cache) {
            tracing::error!(%error, "a view cannot follow its objects");
        }
    }
}

impl<V: Indexer> Held<V> {
    fn is_behind(&self) -> bool {
        self.sources.iter().any(|source| source.watcher.is_behind())
    }

    /// Takes in what changed.
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
                Some(item) => put(&mut self.view, source, item),
                None => drop(source.place(change.key()).map(|place| self.view.remove_object(place))),
            }
        }
        self.view.rebuild();
        Ok(())
    }

    /// Begins anew with what the cache has.
    fn load(&mut self, cache: &WatchCache) -> Result<(), store::StoreError> {
        self.view.clear();
        for source in &mut self.sources {
            let snapshot = cache.cached_snapshot(&source.prefix);
            source.watcher = cache.watch_prefix(&source.prefix, snapshot.revision)?;
            snapshot.items_after(None).for_each(|item| put(&mut self.view, source, item));
        }
        self.view.rebuild();
        Ok(())
    }
}

impl Source {
    /// Which object a key is of.
    fn place<'a>(&self, key: &'a str) -> Option<ObjectKey<'a>> {
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let (namespace, name) = if self.resource.is_namespaced() { rest.split_once('/')? } else { ("", rest) };
        Some(ObjectKey { resource: self.resource, namespace, name })
    }
}

fn put<V: Indexer>(view: &mut V, source: &Source, item: &CachedItem) {
    let Some(place) = source.place(&item.record.key) else { return };
    match document::decode_record(&item.record) {
        Ok(object) if initializers::is_pending(&object) => view.remove_object(place),
        Ok(object) => view.insert_item(place, &convert::convert_to(source.resource, object), item),
        Err(error) => {
            tracing::warn!(key = &*item.record.key, %error, "a stored document cannot be read; it is as good as absent");
            view.remove_object(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use serde_json::json;
    use store::{EmbeddedOptions, EmbeddedStore, HistoryWindow, Precondition, Store, WriteRequest};

    use super::*;
    use crate::{catalog::BuiltIn, loopback};

    #[derive(Default)]
    struct Names {
        known: BTreeMap<String, String>,
        loads: usize,
    }

    impl Indexer for Names {
        fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
            let value = api::meta::string_at(object, &["data", "k"]).to_owned();
            self.known.insert(format!("{} {}/{}", place.resource.name, place.namespace, place.name), value);
        }

        fn remove_object(&mut self, place: ObjectKey<'_>) {
            self.known.remove(&format!("{} {}/{}", place.resource.name, place.namespace, place.name));
        }

        fn clear(&mut self) {
            self.known.clear();
            self.loads += 1;
        }
    }

    struct World {
        store: Arc<dyn Store>,
        live: CacheIndex<Names>,
        _dir: tempfile::TempDir,
    }

    impl World {
        async fn new(window: HistoryWindow) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store: Arc<dyn Store> =
                Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap());
            write(&*store, "/registry/configmaps/a/first", Some("0")).await;
            let cache = Arc::new(WatchCache::with_engine(store.clone(), Arc::new(BuiltIn), window).await.unwrap());
            let resources = ["configmaps", "namespaces"].map(|name| loopback::find_resource("", "v1", name).unwrap());
            let live = CacheIndex::new(&cache, &resources, Names::default()).unwrap();
            Self { store, live, _dir: dir }
        }

        async fn check(&self, want: &[(&str, &str)]) {
            let known = self.live.read_fresh(|names| names.known.clone()).await;
            let known: Vec<(&str, &str)> = known.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(known, want);
        }
    }

    async fn write(store: &dyn Store, key: &str, value: Option<&str>) {
        let kind = if key.contains("configmaps") { "ConfigMap" } else { "Namespace" };
        let object = |value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "data": {"k": value}});
        let guard = store
            .get(key)
            .await
            .unwrap()
            .map_or(Precondition::Absent, |record| Precondition::Revision(record.revision));
        let value = value.map(|value| document::encode_document(&object(value)));
        store.write(WriteRequest { key: key.into(), precondition: guard, value, ttl: None }).await.unwrap();
    }

    #[tokio::test]
    async fn a_view_has_what_the_cache_has() {
        let world = World::new(HistoryWindow::default()).await;
        world.check(&[("configmaps a/first", "0")]).await;
        write(&*world.store, "/registry/configmaps/a/first", Some("1")).await;
        write(&*world.store, "/registry/namespaces/n", Some("2")).await;
        write(&*world.store, "/registry/secrets/a/other", Some("3")).await;
        world.check(&[("configmaps a/first", "1"), ("namespaces /n", "2")]).await;
        write(&*world.store, "/registry/configmaps/a/first", None).await;
        world.check(&[("namespaces /n", "2")]).await;
        assert_eq!(world.live.read(|names| (names.known.len(), names.loads)), (1, 1), "only changes are taken in");
    }

    #[tokio::test]
    async fn a_view_that_nobody_read_for_long_is_built_anew() {
        let world =
            World::new(HistoryWindow { keep_for: Duration::ZERO, keep_changes: 1, spare_bytes: 1, keep_bytes: 1 })
                .await;
        for value in 0..300 {
            write(&*world.store, "/registry/configmaps/a/first", Some(&value.to_string())).await;
            write(&*world.store, "/registry/namespaces/n", Some("2")).await;
        }
        world.check(&[("configmaps a/first", "299"), ("namespaces /n", "2")]).await;
        assert!(world.live.read(|names| names.loads) > 1);
    }
}
