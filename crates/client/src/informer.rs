//! Shared informers: a list and watch kept as an indexed cache, with event handlers.
//!
//! The cache is updated before the handlers run, and handlers run in watch order, so a handler reads a cache that is at
//! least as new as its event.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    future::ready,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard},
    time::Duration,
};

use futures::{Stream, StreamExt};
use kube::{Api, Client, Resource, core::ApiResource, runtime::watcher};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use panics::contain_panic_sync;

pub use crate::cached_view::CachedObject;
use crate::{
    cached_view::CachedView,
    indexer::{Indexer, ResourceEvent},
    raw_object::{RawObject, decode_event, watch_raw_objects},
};

/// Delay before a handler that panicked is called again; doubles up to 64 times.
const HANDLER_RETRY_DELAY: Duration = Duration::from_secs(1);

type EventHandler<K> = Arc<dyn Fn(&ResourceEvent<K>) + Send + Sync>;

/// A cache of one resource (restricted by the watcher's configuration), kept current by a watch. Cheap to clone.
pub struct SharedInformer<K> {
    shared: Arc<InformerState<K>>,
}

struct InformerState<K> {
    cache: RwLock<Indexer<K>>,
    /// Locked while an event is applied and delivered, so that a new handler sees every object exactly once.
    handlers: Mutex<Vec<EventHandler<K>>>,
    synced: watch::Sender<bool>,
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: CachedView> SharedInformer<K> {
    /// Starts watching in the background until `shutdown`.
    pub fn start(api: Api<K::Object>, config: watcher::Config, shutdown: CancellationToken) -> Self {
        let informer = Self::new_idle();
        let (namespace, resource) = (api.namespace().map(str::to_owned), ApiResource::erase::<K::Object>(&()));
        let events = watch_raw_objects(api.into_client(), namespace.as_deref(), &resource, config);
        let events = events.filter_map(|event| ready(decode_or_skip::<K>(event)));
        let follower = informer.clone();
        tokio::spawn(async move { shutdown.run_until_cancelled(follower.process_events(events)).await });
        informer
    }

    /// Waits until the cache holds the first list and all handlers have processed it.
    pub async fn wait_for_cache_sync(&self) {
        let mut synced = self.shared.synced.subscribe();
        // The sender lives in `self`, so this wait cannot fail.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether [`SharedInformer::wait_for_cache_sync`] would return at once.
    pub fn has_synced(&self) -> bool {
        *self.shared.synced.borrow()
    }

    /// Returns an object; `namespace` is empty for cluster-scoped resources.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read_indexer().get(namespace, name)
    }

    /// Returns the newest resource version that the cache has seen; zero before the first object.
    pub fn latest_resource_version(&self) -> u64 {
        self.read_indexer().latest_resource_version()
    }

    /// Returns all objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.read_indexer().list()
    }

    /// Adds or replaces the index `name`; `values` returns the index values of an object. Components that share an
    /// informer share its indexes.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {
        let mut cache = self.shared.cache.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        cache.add_index(name, Box::new(values));
    }

    /// Returns the objects that index `name` has under `value`.
    pub fn by_index(&self, name: &'static str, value: &str) -> Vec<Arc<K>> {
        self.read_indexer().by_index(name, value)
    }

    /// Returns the objects that index `name` has under that of `values` which has the fewest; none if a value has none.
    pub fn by_rarest_index<'a>(&self, name: &'static str, values: impl Iterator<Item = &'a str>) -> Vec<Arc<K>> {
        self.read_indexer().by_rarest(name, values)
    }

    /// Calls `handler` with every later event, and with `Added` for every object already cached. The handler must
    /// neither block nor add handlers.
    pub fn add_event_handler(&self, handler: impl Fn(&ResourceEvent<K>) + Send + Sync + 'static) {
        let mut handlers = self.lock_handlers();
        let handler: EventHandler<K> = Arc::new(handler);
        self.list().into_iter().for_each(|object| self.call_handler(&handler, &ResourceEvent::Added(object), 0));
        handlers.push(handler);
    }

    pub(crate) fn new_idle() -> Self {
        Self {
            shared: Arc::new(InformerState {
                cache: RwLock::default(),
                handlers: Mutex::default(),
                synced: watch::Sender::new(false),
            }),
        }
    }

    async fn process_events(&self, events: impl Stream<Item = watcher::Result<watcher::Event<K::Object>>>) {
        let mut events = pin!(events);
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => self.handle_event(event, &mut listed),
                Err(error) => tracing::warn!(kind = %K::Object::kind(&()), %error, "informer: watch failed, retrying"),
            }
        }
    }

    /// Applies one watch event; `listed` collects the objects of a list in progress.
    pub(crate) fn handle_event(&self, event: watcher::Event<K::Object>, listed: &mut Vec<K>) {
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.push(K::from_object(object)),
            watcher::Event::InitDone => {
                self.apply_change(|cache| cache.replace_all(std::mem::take(listed)));
                self.shared.synced.send_replace(true);
            }
            watcher::Event::Apply(object) => self.apply_change(|cache| cache.apply_object(K::from_object(object))),
            watcher::Event::Delete(object) => self.apply_change(|cache| cache.delete_object(K::from_object(object))),
        }
    }

    fn apply_change(&self, change: impl FnOnce(&mut Indexer<K>) -> Vec<ResourceEvent<K>>) {
        let handlers = self.lock_handlers();
        let changes = change(&mut self.shared.cache.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for change in &changes {
            handlers.iter().for_each(|handler| self.call_handler(handler, change, 0));
        }
    }

    /// Calls a handler. After a panic it is called again with the object's then current state, after a back-off.
    fn call_handler(&self, handler: &EventHandler<K>, event: &ResourceEvent<K>, failures: u32) {
        let (namespace, name) = event.object().namespace_and_name();
        let key = format_args!("{} {namespace}/{name}", K::Object::kind(&()));
        if contain_panic_sync("informer", key, || handler(event)).is_ok() {
            return;
        }
        let (state, handler, event) = (Arc::downgrade(&self.shared), handler.clone(), event.clone());
        let delay = HANDLER_RETRY_DELAY.saturating_mul(1 << failures.min(6));
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let Some(shared) = state.upgrade() else { return };
            let informer = SharedInformer { shared };
            let _delivering = informer.lock_handlers();
            let (namespace, name) = event.object().namespace_and_name();
            let event = informer.get(namespace, name).map_or(event.clone(), ResourceEvent::Added);
            informer.call_handler(&handler, &event, failures + 1);
        });
    }

    fn read_indexer(&self) -> RwLockReadGuard<'_, Indexer<K>> {
        self.shared.cache.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_handlers(&self) -> MutexGuard<'_, Vec<EventHandler<K>>> {
        self.shared.handlers.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Decodes an event of a watch. An object that cannot be decoded is left out, so that it does not hold up the others.
fn decode_or_skip<K: CachedView>(
    event: watcher::Result<watcher::Event<RawObject>>,
) -> Option<watcher::Result<watcher::Event<K::Object>>> {
    match event.map(decode_event) {
        Ok(Ok(event)) => Some(Ok(event)),
        Ok(Err(error)) => {
            tracing::error!(kind = %K::Object::kind(&()), %error, "informer: undecodable object left out");
            None
        }
        Err(error) => Some(Err(error)),
    }
}

/// Informers shared by the components of one process: one per resource, started on first use.
#[derive(Clone)]
pub struct SharedInformerFactory {
    client: Client,
    shutdown: CancellationToken,
    started: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send + Sync>>>>,
}

impl SharedInformerFactory {
    /// Creates an empty factory whose informers use `client` and stop at `shutdown`.
    pub fn new(client: Client, shutdown: CancellationToken) -> Self {
        Self { client, shutdown, started: Arc::default() }
    }

    /// The client that informers list and watch with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the informer for `K` in all namespaces.
    pub fn informer_for<K: CachedView>(&self) -> SharedInformer<K> {
        let mut started = self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let informer = started.entry(TypeId::of::<K>()).or_insert_with(|| {
            Box::new(SharedInformer::<K>::start(
                Api::all(self.client.clone()),
                watcher::Config::default(),
                self.shutdown.clone(),
            ))
        });
        informer.downcast_ref::<SharedInformer<K>>().expect("the entry was made for this type").clone()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

    use super::*;

    /// Builds a ConfigMap `name` with uid `name:incarnation` and a resource version.
    fn object(name: &str, incarnation: u8, version: u32) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.into());
        object.metadata.namespace = Some("ns".into());
        object.metadata.uid = Some(format!("{name}:{incarnation}"));
        object.metadata.resource_version = Some(version.to_string());
        object.metadata.managed_fields = Some(vec![Default::default()]);
        object
    }

    /// Feeds events and returns those that a handler received, as `+name@version`, `~name@version`, `-name@version`.
    async fn check(events: Vec<watcher::Event<ConfigMap>>) -> (SharedInformer<ConfigMap>, Vec<String>) {
        let informer = SharedInformer::<ConfigMap>::new_idle();
        let received = Arc::new(Mutex::new(Vec::new()));
        let sink = received.clone();
        informer.add_event_handler(move |change| {
            let sign = match change {
                ResourceEvent::Added(_) => '+',
                ResourceEvent::Updated { .. } => '~',
                ResourceEvent::Deleted(_) => '-',
            };
            let meta = &change.object().metadata;
            let line = format!("{sign}{}@{}", meta.name.clone().unwrap(), meta.resource_version.clone().unwrap());
            sink.lock().unwrap().push(line);
        });
        informer.process_events(futures::stream::iter(events.into_iter().map(Ok))).await;
        let received = received.lock().unwrap().clone();
        (informer, received)
    }

    #[tokio::test]
    async fn list_and_watch_events_reach_the_handler() {
        let events =
            vec![Init, InitApply(object("a", 1, 1)), InitDone, Apply(object("b", 1, 2)), Apply(object("a", 1, 3))];
        let (informer, received) = check(events).await;
        assert_eq!(received, ["+a@1", "+b@2", "~a@3"]);
        assert_eq!(informer.list().len(), 2);
        assert!(informer.get("ns", "a").unwrap().metadata.managed_fields.is_none());
        informer.wait_for_cache_sync().await;
    }

    #[tokio::test]
    async fn incomplete_list_delivers_no_events() {
        let (informer, received) = check(vec![Init, InitApply(object("a", 1, 1))]).await;
        assert!(received.is_empty() && informer.list().is_empty() && !informer.has_synced());
    }

    #[tokio::test]
    async fn relist_delivers_only_differences() {
        let first = vec![Init, InitApply(object("a", 1, 1)), InitApply(object("b", 1, 2)), InitDone];
        let broken = vec![Init, InitApply(object("x", 1, 9))];
        let second = vec![Init, InitApply(object("b", 1, 2)), InitApply(object("c", 1, 5)), InitDone];
        let (informer, received) = check([first, broken, second].concat()).await;
        assert_eq!(received[2..], ["-a@1", "+c@5"]);
        assert!(informer.get("ns", "a").is_none() && informer.get("ns", "x").is_none());
    }

    #[tokio::test]
    async fn recreated_object_is_a_delete_and_an_add() {
        let events =
            vec![Init, InitApply(object("a", 1, 1)), InitDone, Apply(object("a", 2, 7)), Delete(object("a", 2, 8))];
        let (informer, received) = check(events).await;
        assert_eq!(received, ["+a@1", "-a@1", "+a@7", "-a@8"]);
        assert!(informer.list().is_empty());
    }

    #[tokio::test]
    async fn indexes_follow_changes() {
        let (informer, _) =
            check(vec![Init, InitApply(object("a", 1, 1)), InitApply(object("b", 1, 2)), InitDone]).await;
        informer.add_index("version", |object| object.metadata.resource_version.iter().cloned().collect());
        assert_eq!(informer.by_index("version", "1").len(), 1);
        informer.handle_event(Apply(object("a", 1, 3)), &mut Vec::new());
        assert!(informer.by_index("version", "1").is_empty());
        assert_eq!(informer.by_index("version", "3")[0].metadata.name.as_deref(), Some("a"));
        informer.handle_event(Delete(object("a", 1, 4)), &mut Vec::new());
        assert!(informer.by_index("version", "3").is_empty() && informer.by_index("version", "4").is_empty());
    }

    #[tokio::test]
    async fn late_handler_receives_cached_objects() {
        let (informer, _) = check(vec![Init, InitApply(object("a", 1, 1)), InitDone]).await;
        let count = Arc::new(Mutex::new(0));
        let counter = count.clone();
        informer.add_event_handler(move |_| *counter.lock().unwrap() += 1);
        assert_eq!(*count.lock().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_handler_is_called_again_and_others_are_unaffected() {
        let informer = SharedInformer::<ConfigMap>::new_idle();
        let (panicking, healthy) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let (calls, count) = (panicking.clone(), healthy.clone());
        informer.add_event_handler(move |event| {
            let mut calls = calls.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            calls.push(event.object().metadata.resource_version.clone().unwrap());
            assert!(calls.len() > 2, "a bug");
        });
        informer.add_event_handler(move |_| *count.lock().unwrap() += 1);
        informer.handle_event(Apply(object("a", 1, 1)), &mut Vec::new());
        informer.handle_event(Apply(object("a", 1, 2)), &mut Vec::new());
        assert_eq!(*healthy.lock().unwrap(), 2);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let calls = panicking.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        assert_eq!(calls, ["1", "2", "2", "2"]);
        assert!(panics::panic_count("informer") >= 2);
    }
}
