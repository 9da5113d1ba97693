//! ConfigMaps and Secrets that pods of this node use, each followed by a watch of its own.
//!
//! An object is watched from its first use until the last pod that uses it has ended; an immutable one is read once.
//! When it changes, the pods that use it are woken, so that their volumes show it at once. A cache that does not fill in
//! time, because the API server refuses the watch, is bypassed by a read, whose error says why.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use client::SharedInformer;
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, runtime::watcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Time for a watch to deliver the object.
const SYNC_TIMEOUT: Duration = Duration::from_secs(1);

/// Values of an object by key.
pub type ObjectData = BTreeMap<String, Vec<u8>>;

/// An object with values for pods.
pub trait ConfigObject:
    kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// Returns the values.
    fn to_data(&self) -> ObjectData;
    /// Whether the object never changes.
    fn is_immutable(&self) -> bool;
}

impl ConfigObject for ConfigMap {
    fn to_data(&self) -> ObjectData {
        let text = self.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
        let binary = self.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
        text.chain(binary).collect()
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl ConfigObject for Secret {
    fn to_data(&self) -> ObjectData {
        self.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
    }

    fn is_immutable(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// Tells a pod's worker that an object of the pod has changed.
#[derive(Default)]
pub struct ObjectChanges {
    changed: AtomicBool,
    wake: Arc<Notify>,
}

impl ObjectChanges {
    /// Creates a flag that wakes its pod's worker.
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { changed: AtomicBool::new(false), wake }
    }

    /// Returns whether an object has changed since the last call.
    pub fn take(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    fn notify(&self) {
        self.changed.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

/// The pod that asks for an object.
#[derive(Clone)]
pub struct ObjectUser {
    /// The pod's uid.
    pub uid: String,
    /// Its worker's flag.
    pub changes: Arc<ObjectChanges>,
}

/// Watched objects by namespace and name.
type WatchedObjects<K> = HashMap<(String, String), Arc<WatchedObject<K>>>;

/// The watched objects of one kind.
pub struct ObjectCache<K> {
    client: Client,
    shutdown: CancellationToken,
    objects: Mutex<WatchedObjects<K>>,
}

struct WatchedObject<K> {
    informer: SharedInformer<K>,
    /// Ends the watch.
    stop: CancellationToken,
    users: Mutex<HashMap<String, Weak<ObjectChanges>>>,
    /// Whether a pod has read it: the first delivery is not a change.
    is_read: AtomicBool,
}

impl<K> Drop for WatchedObject<K> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl<K> WatchedObject<K> {
    fn lock_users(&self) -> MutexGuard<'_, HashMap<String, Weak<ObjectChanges>>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify_users(&self) {
        if self.is_read.load(Ordering::Acquire) {
            self.lock_users().values().filter_map(Weak::upgrade).for_each(|changes| changes.notify());
        }
    }
}

impl<K: ConfigObject> ObjectCache<K> {
    /// Creates an empty cache; its watches end at `shutdown`.
    pub fn new(client: Client, shutdown: CancellationToken) -> Self {
        Self { client, shutdown, objects: Mutex::default() }
    }

    /// Returns an object for a pod, which is woken by later changes.
    pub async fn get(&self, user: &ObjectUser, namespace: &str, name: &str) -> kube::Result<Option<Arc<K>>> {
        let watched = self.watch_object(user, namespace, name);
        if tokio::time::timeout(SYNC_TIMEOUT, watched.informer.wait_for_cache_sync()).await.is_err() {
            return Ok(self.api(namespace).get_opt(name).await?.map(Arc::new));
        }
        watched.is_read.store(true, Ordering::Release);
        let object = watched.informer.get(namespace, name);
        if object.as_ref().is_some_and(|object| object.is_immutable()) {
            watched.stop.cancel();
        }
        Ok(object)
    }

    /// Forgets a pod that has ended, and the objects that no other pod uses.
    pub fn release_pod(&self, uid: &str) {
        self.lock_objects().retain(|_, watched| {
            let mut users = watched.lock_users();
            users.remove(uid);
            !users.is_empty()
        });
    }

    fn api(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn lock_objects(&self) -> MutexGuard<'_, WatchedObjects<K>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch_object(&self, user: &ObjectUser, namespace: &str, name: &str) -> Arc<WatchedObject<K>> {
        let mut objects = self.lock_objects();
        let key = (namespace.to_string(), name.to_string());
        let watched = objects.entry(key).or_insert_with(|| self.start_watch(namespace, name)).clone();
        watched.lock_users().insert(user.uid.clone(), Arc::downgrade(&user.changes));
        watched
    }

    fn start_watch(&self, namespace: &str, name: &str) -> Arc<WatchedObject<K>> {
        let stop = self.shutdown.child_token();
        let selected = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let informer = SharedInformer::start(self.api(namespace), selected, stop.clone());
        let watched =
            Arc::new(WatchedObject { informer, stop, users: Mutex::default(), is_read: AtomicBool::new(false) });
        let weak = Arc::downgrade(&watched);
        watched.informer.add_event_handler(move |_| {
            if let Some(watched) = weak.upgrade() {
                watched.notify_users();
            }
        });
        watched
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::StreamExt;
    use hyper::body::Frame;
    use serde_json::json;

    use super::*;

    /// Serves one ConfigMap to lists, watches and reads, and counts the requests.
    fn serve(requests: Arc<AtomicUsize>, immutable: bool) -> Client {
        let respond = move |request: http::Request<kube::client::Body>| {
            requests.fetch_add(1, Ordering::SeqCst);
            let query = request.uri().query().unwrap_or_default().to_string();
            let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "immutable": immutable, "data": { "k": "v" },
                "metadata": { "name": "config", "namespace": "ns", "uid": "1", "resourceVersion": "5" } });
            let end = json!({ "type": "BOOKMARK", "object": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "resourceVersion": "5", "annotations": { "k8s.io/initial-events-end": "true" } } } });
            async move {
                let is_watch = query.contains("watch=true");
                assert!(!is_watch || query.contains("metadata.name%3Dconfig"), "{query}");
                let events = format!("{}\n{end}\n", json!({ "type": "ADDED", "object": object }));
                let text = if is_watch { events } else { object.to_string() };
                let first = futures::stream::iter([Ok::<_, tower::BoxError>(Frame::data(bytes::Bytes::from(text)))]);
                // A watch stays open.
                let rest = if is_watch {
                    futures::stream::pending().left_stream()
                } else {
                    futures::stream::empty().right_stream()
                };
                let body = http_body_util::StreamBody::new(first.chain(rest));
                Ok::<_, tower::BoxError>(http::Response::new(body))
            }
        };
        client::transport::in_process_client(tower::service_fn(respond), "test")
    }

    #[tokio::test]
    async fn object_of_many_pods_is_watched_once() {
        let requests = Arc::new(AtomicUsize::new(0));
        let cache: ObjectCache<ConfigMap> = ObjectCache::new(serve(requests.clone(), false), CancellationToken::new());
        for index in 0..50 {
            let user = ObjectUser { uid: index.to_string(), changes: Arc::default() };
            let object = cache.get(&user, "ns", "config").await.unwrap().unwrap();
            assert_eq!(object.to_data()["k"], b"v");
            assert!(!user.changes.take());
        }
        assert_eq!(requests.load(Ordering::SeqCst), 1);
        (0..50).for_each(|index: i32| cache.release_pod(&index.to_string()));
        assert!(cache.lock_objects().is_empty());
    }

    #[tokio::test]
    async fn pods_are_woken_by_changes_after_their_first_read() {
        let cache: ObjectCache<ConfigMap> = ObjectCache::new(serve(Arc::default(), false), CancellationToken::new());
        let user = ObjectUser { uid: "1".into(), changes: Arc::default() };
        cache.get(&user, "ns", "config").await.unwrap();
        let watched = cache.watch_object(&user, "ns", "config");
        watched.notify_users();
        assert!(user.changes.take() && !user.changes.take());
    }
}
