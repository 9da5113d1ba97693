//! Informers: a list and a watch kept as an indexed cache, with handlers that hear every change.
//!
//! The cache changes first, then the handlers are told, in the order of the watch; a handler may therefore read the
//! cache and finds at least what it is told about.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard},
};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource,
    runtime::{WatchStreamExt, watcher},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cache::Cache;

/// What an informer may cache.
pub trait Object:
    Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Object for K where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + Sync + 'static
{
}

/// One change of the cache, told to handlers after the cache has it.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// An object that the cache did not have.
    Added(Arc<K>),
    /// A newer version of an object.
    Updated {
        /// What the cache had.
        old: Arc<K>,
        /// What it has now.
        new: Arc<K>,
    },
    /// The last known state of an object that is gone.
    Deleted(Arc<K>),
}

impl<K> Change<K> {
    /// The newest known state of the object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object) => object,
        }
    }
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// A cache of all objects of one kind (that the configuration selects), kept current by a watch. Cheap to clone.
pub struct Informer<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    cache: RwLock<Cache<K>>,
    /// Held while a change is applied and told, so that a new handler hears of every object exactly once.
    handlers: Mutex<Vec<Handler<K>>>,
    synced: watch::Sender<bool>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Object> Informer<K> {
    /// Starts watching in the background, until `shutdown`.
    pub fn start(api: Api<K>, config: watcher::Config, shutdown: CancellationToken) -> Self {
        let informer = Self::idle();
        let events = watcher(api, config.streaming_lists()).default_backoff();
        let follower = informer.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(follower.follow(events)).await });
        informer
    }

    /// Returns once the cache holds everything that the first list returned and all handlers have heard of it.
    pub async fn synced(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives in `self`, so the wait cannot end in an error.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether [`Informer::synced`] would return at once.
    pub fn is_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// The object of that name; `namespace` is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.cache().get(namespace, name)
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.cache().list()
    }

    /// Adds an index, before or after the start: `values` says under which values an object is found. An index of a
    /// name that exists is replaced: components that share an informer share its indexes of one name.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut cache = self.shared.cache.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        cache.add_index(name, Box::new(values));
    }

    /// The objects that the index `name` has under `value`.
    pub fn by_index(&self, name: &'static str, value: &str) -> Vec<Arc<K>> {
        self.cache().by_index(name, value)
    }

    /// Calls `handler` for every change from now on, and with `Added` for every object already cached. It must not
    /// block, nor add handlers itself.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.handlers();
        self.list().into_iter().for_each(|object| handler(&Change::Added(object)));
        handlers.push(Box::new(handler));
    }

    fn idle() -> Self {
        Self {
            shared: Arc::new(Shared {
                cache: RwLock::default(),
                handlers: Mutex::default(),
                synced: watch::Sender::new(false),
            }),
        }
    }

    async fn follow(&self, events: impl Stream<Item = watcher::Result<watcher::Event<K>>>) {
        let mut events = pin!(events);
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.handle(event.modify(|object| object.meta_mut().managed_fields = None), &mut listed),
                Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "watch failed, trying again"),
            }
        }
    }

    /// Applies one event; `listed` holds the objects of a list that has begun and is not complete.
    fn handle(&self, event: watcher::Event<K>, listed: &mut Vec<K>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.push(object),
            watcher::Event::InitDone => {
                self.change(|cache| cache.replace(std::mem::take(listed)));
                self.shared.synced.send_replace(true);
            }
            watcher::Event::Apply(object) => self.change(|cache| cache.apply(object)),
            watcher::Event::Delete(object) => self.change(|cache| cache.delete(object)),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Cache<K>) -> Vec<Change<K>>) {
        let handlers = self.handlers();
        let changes = change(&mut self.shared.cache.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for change in &changes {
            handlers.iter().for_each(|handler| handler(change));
        }
    }

    fn cache(&self) -> RwLockReadGuard<'_, Cache<K>> {
        self.shared.cache.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn handlers(&self) -> MutexGuard<'_, Vec<Handler<K>>> {
        self.shared.handlers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The informers that the components of one process share: one per kind, started at its first use.
#[derive(Clone)]
pub struct Informers {
    client: Client,
    shutdown: CancellationToken,
    started: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl Informers {
    /// An empty set. Its informers use `client` and end with `shutdown`.
    pub fn new(client: Client, shutdown: CancellationToken) -> Self {
        Self { client, shutdown, started: Arc::default() }
    }

    /// As whom informers read: loops may write as somebody else.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The informer for `K` in all namespaces.
    pub fn of<K: Object>(&self) -> Informer<K> {
        let mut started = self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let informer = started.entry(TypeId::of::<K>()).or_insert_with(|| {
            Box::new(Informer::<K>::start(
                Api::all(self.client.clone()),
                watcher::Config::default(),
                self.shutdown.clone(),
            ))
        });
        informer.downcast_ref::<Informer<K>>().expect("the entry was made for this type").clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    /// A ConfigMap `name` with a uid `name:incarnation` and a version.
    fn object(name: &str, incarnation: u8, version: u32) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.namespace = Some("ns".into());
        object.metadata.uid = Some(format!("{name}:{incarnation}"));
        object.metadata.resource_version = Some(version.to_string());
        object.metadata.managed_fields = Some(vec![Default::default()]);
        object
    }

    /// Feeds events and returns what a handler heard, as `+name@version`, `~name@version`, `-name@version`.
    async fn check(events: Vec<watcher::Event<ConfigMap>>) -> (Informer<ConfigMap>, Vec<String>) {
        let informer = Informer::<ConfigMap>::idle();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        informer.on_change(move |change| {
            let sign = match change {
                Change::Added(_) => '+',
                Change::Updated { .. } => '~',
                Change::Deleted(_) => '-',
            };
            let meta = &change.object().metadata;
            let line = format!("{sign}{}@{}", meta.name.clone().unwrap(), meta.resource_version.clone().unwrap());
            sink.lock().unwrap().push(line);
        });
        informer.follow(futures::stream::iter(events.into_iter().map(Ok))).await;
        let heard = heard.lock().unwrap().clone();
        (informer, heard)
    }

    #[tokio::test]
    async fn first_list_and_watch() {
        let events =
            vec![Init, InitApply(object("a", 1, 1)), InitDone, Apply(object("b", 1, 2)), Apply(object("a", 1, 3))];
        let (informer, heard) = check(events).await;
        assert_eq!(heard, ["+a@1", "+b@2", "~a@3"]);
        assert_eq!(informer.list().len(), 2);
        assert!(informer.get("ns", "a").unwrap().metadata.managed_fields.is_none());
        informer.synced().await;
    }

    #[tokio::test]
    async fn nothing_is_told_before_the_list_is_complete() {
        let (informer, heard) = check(vec![Init, InitApply(object("a", 1, 1))]).await;
        assert!(heard.is_empty() && informer.list().is_empty() && !informer.is_synced());
    }

    #[tokio::test]
    async fn relist_tells_only_differences() {
        let first = vec![Init, InitApply(object("a", 1, 1)), InitApply(object("b", 1, 2)), InitDone];
        let broken = vec![Init, InitApply(object("x", 1, 9))];
        let second = vec![Init, InitApply(object("b", 1, 2)), InitApply(object("c", 1, 5)), InitDone];
        let (informer, heard) = check([first, broken, second].concat()).await;
        assert_eq!(heard[2..], ["-a@1", "+c@5"]);
        assert!(informer.get("ns", "a").is_none() && informer.get("ns", "x").is_none());
    }

    #[tokio::test]
    async fn same_name_other_uid_is_a_delete_and_an_add() {
        let events =
            vec![Init, InitApply(object("a", 1, 1)), InitDone, Apply(object("a", 2, 7)), Delete(object("a", 2, 8))];
        let (informer, heard) = check(events).await;
        assert_eq!(heard, ["+a@1", "-a@1", "+a@7", "-a@8"]);
        assert!(informer.list().is_empty());
    }

    #[tokio::test]
    async fn indexes_follow_changes() {
        let (informer, _) =
            check(vec![Init, InitApply(object("a", 1, 1)), InitApply(object("b", 1, 2)), InitDone]).await;
        informer.add_index("version", |object| object.metadata.resource_version.iter().cloned().collect());
        assert_eq!(informer.by_index("version", "1").len(), 1);
        informer.handle(Apply(object("a", 1, 3)), &mut Vec::new());
        assert!(informer.by_index("version", "1").is_empty());
        assert_eq!(informer.by_index("version", "3")[0].metadata.name.as_deref(), Some("a"));
        informer.handle(Delete(object("a", 1, 4)), &mut Vec::new());
        assert!(informer.by_index("version", "3").is_empty() && informer.by_index("version", "4").is_empty());
    }

    #[tokio::test]
    async fn a_late_handler_hears_of_what_is_cached() {
        let (informer, _) = check(vec![Init, InitApply(object("a", 1, 1)), InitDone]).await;
        let count = Arc::new(Mutex::new(0));
        let counter = count.clone();
        informer.on_change(move |_| *counter.lock().unwrap() += 1);
        assert_eq!(*count.lock().unwrap(), 1);
    }
}
