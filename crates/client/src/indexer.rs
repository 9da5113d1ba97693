//! The indexed store behind an informer.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use crate::cached_view::CachedView;

/// `namespace/name`; the namespace is empty for cluster-scoped resources.
type ObjectKey = Arc<str>;
type IndexFunc<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Objects by key and by index value. Invariant: an object is in every index exactly when it is in `objects`.
pub(crate) struct Indexer<K> {
    objects: HashMap<ObjectKey, Arc<K>>,
    indexes: HashMap<&'static str, StoreIndex<K>>,
    /// The newest resource version of an applied or deleted object.
    latest_resource_version: u64,
}

struct StoreIndex<K> {
    values: IndexFunc<K>,
    entries: HashMap<String, BTreeMap<ObjectKey, Arc<K>>>,
}

impl<K> Default for Indexer<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), indexes: HashMap::new(), latest_resource_version: 0 }
    }
}

impl<K: CachedView> Indexer<K> {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.objects.get(format!("{namespace}/{name}").as_str()).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(crate) fn latest_resource_version(&self) -> u64 {
        self.latest_resource_version
    }

    fn observe_version(&mut self, object: &K) {
        let version = object.resource_version().parse().unwrap_or(0);
        self.latest_resource_version = self.latest_resource_version.max(version);
    }

    pub(crate) fn add_index(&mut self, name: &'static str, values: IndexFunc<K>) {
        let mut index = StoreIndex { values, entries: HashMap::new() };
        self.objects.iter().for_each(|(key, object)| index.insert(key, object));
        self.indexes.insert(name, index);
    }

    pub(crate) fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let entry = self.indexes.get(name).and_then(|index| index.entries.get(value));
        entry.map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Stores a newer object. An object that was recreated under its name yields a delete and an add.
    pub(crate) fn apply_object(&mut self, object: K) -> Vec<ResourceEvent<K>> {
        self.observe_version(&object);
        let key = object_key(&object);
        let new = Arc::new(object);
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old {
            if is_same_version(old.as_ref(), new.as_ref()) {
                return Vec::new();
            }
            self.indexes.values_mut().for_each(|index| index.remove(&key, old));
        }
        self.indexes.values_mut().for_each(|index| index.insert(&key, &new));
        self.objects.insert(key, new.clone());
        match old {
            None => vec![ResourceEvent::Added(new)],
            Some(old) if old.uid() == new.uid() => vec![ResourceEvent::Updated { old, new }],
            Some(old) => vec![ResourceEvent::Deleted(old), ResourceEvent::Added(new)],
        }
    }

    /// Removes an object; the event carries the final state from the watch.
    pub(crate) fn delete_object(&mut self, object: K) -> Vec<ResourceEvent<K>> {
        self.observe_version(&object);
        match self.remove_key(&object_key(&object)) {
            Some(_) => vec![ResourceEvent::Deleted(Arc::new(object))],
            None => Vec::new(),
        }
    }

    /// Replaces the contents with a complete list.
    pub(crate) fn replace_all(&mut self, objects: Vec<K>) -> Vec<ResourceEvent<K>> {
        let listed: HashSet<ObjectKey> = objects.iter().map(object_key).collect();
        let gone: Vec<ObjectKey> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        let mut changes: Vec<_> =
            gone.iter().filter_map(|key| self.remove_key(key)).map(ResourceEvent::Deleted).collect();
        changes.extend(objects.into_iter().flat_map(|object| self.apply_object(object)));
        changes
    }

    fn remove_key(&mut self, key: &str) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        self.indexes.values_mut().for_each(|index| index.remove(key, &old));
        Some(old)
    }
}

impl<K> StoreIndex<K> {
    fn insert(&mut self, key: &ObjectKey, object: &Arc<K>) {
        for value in (self.values)(object) {
            self.entries.entry(value).or_default().insert(key.clone(), object.clone());
        }
    }

    fn remove(&mut self, key: &str, object: &K) {
        for value in (self.values)(object) {
            if let Some(objects) = self.entries.get_mut(&value) {
                objects.remove(key);
                if objects.is_empty() {
                    self.entries.remove(&value);
                }
            }
        }
    }
}

fn object_key<K: CachedView>(object: &K) -> ObjectKey {
    let (namespace, name) = object.namespace_and_name();
    format!("{namespace}/{name}").into()
}

fn is_same_version<K: CachedView>(old: &K, new: &K) -> bool {
    let version = new.resource_version();
    old.uid() == new.uid() && !version.is_empty() && old.resource_version() == version
}

/// A change of the cache, delivered to handlers after the cache has it.
#[derive(Debug)]
pub enum ResourceEvent<K> {
    /// The object is new to the cache.
    Added(Arc<K>),
    /// The object changed.
    Updated {
        /// The previous state.
        old: Arc<K>,
        /// The new state.
        new: Arc<K>,
    },
    /// The object was deleted; this is its last known state.
    Deleted(Arc<K>),
}

impl<K> Clone for ResourceEvent<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(object.clone()),
            Self::Updated { old, new } => Self::Updated { old: old.clone(), new: new.clone() },
            Self::Deleted(object) => Self::Deleted(object.clone()),
        }
    }
}

impl<K> ResourceEvent<K> {
    /// The newest known state of the object.
    pub fn object(&self) -> &Arc<K> {
        match self {
            ResourceEvent::Added(object)
            | ResourceEvent::Updated { new: object, .. }
            | ResourceEvent::Deleted(object) => object,
        }
    }
}
