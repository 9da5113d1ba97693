//! Views: what the server itself must know of stored objects at every request, decoded and indexed once.
//!
//! A [`Live`] follows some resources in the watch cache and keeps a [`View`] of them. It guarantees:
//!
//! - **In step.** [`Live::read`] sees every change that the watch cache has, so whatever a list or a watch has shown to
//!   anybody, and whatever this server has acknowledged. [`Live::fresh`] waits until that is every write acknowledged before.
//! - **Incremental.** A change costs the decoding of one object, paid by the first reader after it; a read without news
//!   costs a lock that readers share.
//! - **Synchronous.** Reading waits for no task and no IO, and nothing is held across an `await`.
//! - **Never stuck.** There is no task that could die: a view that nobody read for so long that the history is gone is built
//!   anew from what the cache holds. It is complete from [`Live::new`] on.
//!
//! Changes are applied in the order of their revisions. A document that cannot be read is as good as absent, and logged.

use std::sync::{Arc, PoisonError, RwLock};

use api::{Value, convert, schema::Resource};
use store::{Cache, Change, Item, Watcher};

use crate::{document, initializers, loopback::Place};

/// What is kept of objects.
pub trait View: Send + Sync + 'static {
    /// An object is new or has changed. It is in the version of the resource that is followed.
    fn put(&mut self, place: Place<'_>, object: &Value);

    /// As [`Self::put`], for who keeps a part of the document as it is.
    fn put_item(&mut self, place: Place<'_>, object: &Value, _item: &Item) {
        self.put(place, object);
    }

    /// An object is gone.
    fn remove(&mut self, place: Place<'_>);

    /// Forget everything: all objects are put again.
    fn clear(&mut self);

    /// Some changes were made and readers come next.
    fn settle(&mut self) {}
}

/// A view that follows its objects.
pub struct Live<V> {
    cache: Arc<Cache>,
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
    watcher: Watcher,
}

impl<V: View> Live<V> {
    /// A view of all objects of some resources.
    pub fn new(cache: &Arc<Cache>, resources: &[&'static Resource], view: V) -> Result<Self, store::Error> {
        let source = |resource: &&'static Resource| {
            let prefix = document::key(resource, "", "");
            let watcher = cache.watch(&prefix, cache.now(&prefix).revision)?;
            cache.follow(&prefix);
            Ok(Source { resource, prefix, watcher })
        };
        let sources = resources.iter().map(source).collect::<Result<_, store::Error>>()?;
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
    pub async fn fresh<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        if let Err(error) = self.cache.freshen().await {
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

impl<V: View> Held<V> {
    fn is_behind(&self) -> bool {
        self.sources.iter().any(|source| source.watcher.is_behind())
    }

    /// Takes in what changed.
    fn catch_up(&mut self, cache: &Cache) -> Result<(), store::Error> {
        let mut changes: Vec<(usize, Arc<Change>)> = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            match source.watcher.take(usize::MAX) {
                Ok(taken) => changes.extend(taken.into_iter().map(|change| (at, change))),
                Err(store::Error::Compacted { .. }) => return self.load(cache),
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
                None => drop(source.place(change.key()).map(|place| self.view.remove(place))),
            }
        }
        self.view.settle();
        Ok(())
    }

    /// Begins anew with what the cache has.
    fn load(&mut self, cache: &Cache) -> Result<(), store::Error> {
        self.view.clear();
        for source in &mut self.sources {
            let snapshot = cache.now(&source.prefix);
            source.watcher = cache.watch(&source.prefix, snapshot.revision)?;
            snapshot.after(None).for_each(|item| put(&mut self.view, source, item));
        }
        self.view.settle();
        Ok(())
    }
}

impl Source {
    /// Which object a key is of.
    fn place<'a>(&self, key: &'a str) -> Option<Place<'a>> {
        let rest = key.strip_prefix(self.prefix.as_str())?;
        let (namespace, name) = if self.resource.is_namespaced() { rest.split_once('/')? } else { ("", rest) };
        Some(Place { resource: self.resource, namespace, name })
    }
}

fn put<V: View>(view: &mut V, source: &Source, item: &Item) {
    let Some(place) = source.place(&item.record.key) else { return };
    match document::object(&item.record) {
        Ok(object) if initializers::is_pending(&object) => view.remove(place),
        Ok(object) => view.put_item(place, &convert::convert_to(source.resource, object), item),
        Err(error) => {
            tracing::warn!(key = &*item.record.key, %error, "a stored document cannot be read; it is as good as absent");
            view.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use serde_json::json;
    use store::{Embedded, Guard, Options, Store, Window, Write};

    use super::*;
    use crate::{catalog::BuiltIn, loopback};

    #[derive(Default)]
    struct Names {
        known: BTreeMap<String, String>,
        loads: usize,
    }

    impl View for Names {
        fn put(&mut self, place: Place<'_>, object: &Value) {
            let value = api::meta::string_at(object, &["data", "k"]).to_owned();
            self.known.insert(format!("{} {}/{}", place.resource.name, place.namespace, place.name), value);
        }

        fn remove(&mut self, place: Place<'_>) {
            self.known.remove(&format!("{} {}/{}", place.resource.name, place.namespace, place.name));
        }

        fn clear(&mut self) {
            self.known.clear();
            self.loads += 1;
        }
    }

    struct World {
        store: Arc<dyn Store>,
        live: Live<Names>,
        _dir: tempfile::TempDir,
    }

    impl World {
        async fn new(window: Window) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store: Arc<dyn Store> = Arc::new(Embedded::open(dir.path(), Options::default()).await.unwrap());
            write(&*store, "/registry/configmaps/a/first", Some("0")).await;
            let cache = Arc::new(Cache::over(store.clone(), Arc::new(BuiltIn), window).await.unwrap());
            let resources = ["configmaps", "namespaces"].map(|name| loopback::resource("", "v1", name).unwrap());
            let live = Live::new(&cache, &resources, Names::default()).unwrap();
            Self { store, live, _dir: dir }
        }

        async fn check(&self, want: &[(&str, &str)]) {
            let known = self.live.fresh(|names| names.known.clone()).await;
            let known: Vec<(&str, &str)> = known.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!(known, want);
        }
    }

    async fn write(store: &dyn Store, key: &str, value: Option<&str>) {
        let kind = if key.contains("configmaps") { "ConfigMap" } else { "Namespace" };
        let object = |value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "data": {"k": value}});
        let guard = store.get(key).await.unwrap().map_or(Guard::Absent, |record| Guard::Revision(record.revision));
        let value = value.map(|value| document::encode(&object(value)));
        store.write(Write { key: key.into(), guard, value, ttl: None }).await.unwrap();
    }

    #[tokio::test]
    async fn a_view_has_what_the_cache_has() {
        let world = World::new(Window::default()).await;
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
            World::new(Window { keep_for: Duration::ZERO, keep_changes: 1, spare_bytes: 1, keep_bytes: 1 }).await;
        for value in 0..300 {
            write(&*world.store, "/registry/configmaps/a/first", Some(&value.to_string())).await;
            write(&*world.store, "/registry/namespaces/n", Some("2")).await;
        }
        world.check(&[("configmaps a/first", "299"), ("namespaces /n", "2")]).await;
        assert!(world.live.read(|names| names.loads) > 1);
    }
}
