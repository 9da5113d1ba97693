//! Informers: a list and a watch kept as an indexed cache, with handlers that hear every change.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex},
};

use kube::{Api, Client, Resource, runtime::watcher};
use tokio_util::sync::CancellationToken;

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

/// A cache of all objects of one kind (that the configuration selects), kept current by a watch. Cheap to clone.
pub struct Informer<K> {
    _contract_only: std::marker::PhantomData<K>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self { _contract_only: std::marker::PhantomData }
    }
}

impl<K: Object> Informer<K> {
    /// Starts watching in the background, until `shutdown`.
    pub fn start(_api: Api<K>, _config: watcher::Config, _shutdown: CancellationToken) -> Self {
        Self { _contract_only: std::marker::PhantomData }
    }

    /// Returns once the cache holds everything that the first list returned and all handlers have heard of it.
    pub async fn synced(&self) {}

    /// The object of that name; `namespace` is empty for cluster-scoped kinds.
    pub fn get(&self, _namespace: &str, _name: &str) -> Option<Arc<K>> {
        None
    }

    /// All objects.
    pub fn list(&self) -> Vec<Arc<K>> {
        Vec::new()
    }

    /// Adds an index, before or after the start: `values` says under which values an object is found.
    pub fn add_index(&self, _name: &'static str, _values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) {}

    /// The objects that the index `name` has under `value`.
    pub fn by_index(&self, _name: &'static str, _value: &str) -> Vec<Arc<K>> {
        Vec::new()
    }

    /// Calls `handler` for every change from now on, and with `Added` for every object already cached. It must not block.
    pub fn on_change(&self, _handler: impl Fn(&Change<K>) + Send + Sync + 'static) {}
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

    /// The informer for `K` in all namespaces.
    pub fn of<K: Object>(&self) -> Informer<K> {
        let mut started = self.started.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let informer = started.entry(TypeId::of::<K>()).or_insert_with(|| {
            Box::new(Informer::<K>::start(Api::all(self.client.clone()), watcher::Config::default(), self.shutdown.clone()))
        });
        informer.downcast_ref::<Informer<K>>().expect("the entry was made for this type").clone()
    }
}
