//! The indexed store behind an informer.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
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
    entries: HashMap<String, KeySet>,
}

/// The keys of the objects that have one value of an index, in order. Most values have few objects, some have nearly all.
enum KeySet {
    Few(Vec<ObjectKey>),
    Many(BTreeSet<ObjectKey>),
}

/// The most keys that are kept as a sorted list.
const FEW_KEYS: usize = 64;

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
        self.objects.iter().for_each(|(key, object)| index.update(key, None, Some(object)));
        self.indexes.insert(name, index);
    }

    pub(crate) fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        self.keys_of(name, value).map_or_else(Vec::new, |keys| self.objects_of(keys))
    }

    /// The objects of that value which has the fewest.
    pub(crate) fn by_rarest<'a>(&self, name: &str, values: impl Iterator<Item = &'a str>) -> Vec<Arc<K>> {
        let mut rarest: Option<&KeySet> = None;
        for value in values {
            match self.keys_of(name, value) {
                None => return Vec::new(),
                Some(keys) if rarest.is_none_or(|rarest| keys.len() < rarest.len()) => rarest = Some(keys),
                Some(_) => {}
            }
        }
        rarest.map_or_else(Vec::new, |keys| self.objects_of(keys))
    }

    fn keys_of(&self, name: &str, value: &str) -> Option<&KeySet> {
        self.indexes.get(name)?.entries.get(value)
    }

    fn objects_of(&self, keys: &KeySet) -> Vec<Arc<K>> {
        let objects = |key: &ObjectKey| self.objects.get(key).cloned();
        match keys {
            KeySet::Few(keys) => keys.iter().filter_map(objects).collect(),
            KeySet::Many(keys) => keys.iter().filter_map(objects).collect(),
        }
    }

    /// Stores a newer object. An object that was recreated under its name yields a delete and an add.
    pub(crate) fn apply_object(&mut self, object: K) -> Vec<ResourceEvent<K>> {
        self.observe_version(&object);
        let new = Arc::new(object);
        let key = object_key(new.as_ref());
        let known = self.objects.get_key_value(&key).map(|(key, old)| (key.clone(), old.clone()));
        let (key, old) = known.map_or((key, None), |(key, old)| (key, Some(old)));
        if old.as_ref().is_some_and(|old| is_same_version(old.as_ref(), new.as_ref())) {
            return Vec::new();
        }
        self.indexes.values_mut().for_each(|index| index.update(&key, old.as_deref(), Some(&new)));
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
        let (key, old) = self.objects.remove_entry(key)?;
        self.indexes.values_mut().for_each(|index| index.update(&key, Some(&old), None));
        Some(old)
    }
}

impl<K> StoreIndex<K> {
    /// Moves a key from the values of the old object to those of the new one.
    fn update(&mut self, key: &ObjectKey, old: Option<&K>, new: Option<&K>) {
        let before = old.map(&self.values).unwrap_or_default();
        let now = new.map(&self.values).unwrap_or_default();
        if before == now {
            return;
        }
        for value in before.iter().filter(|value| !now.contains(value)) {
            if let Some(keys) = self.entries.get_mut(value) {
                keys.remove(key);
                if keys.len() == 0 {
                    self.entries.remove(value);
                }
            }
        }
        for value in now.into_iter().filter(|value| !before.contains(value)) {
            self.entries.entry(value).or_insert_with(|| KeySet::Few(Vec::new())).insert(key);
        }
    }
}

impl KeySet {
    fn len(&self) -> usize {
        match self {
            Self::Few(keys) => keys.len(),
            Self::Many(keys) => keys.len(),
        }
    }

    fn insert(&mut self, key: &ObjectKey) {
        match self {
            Self::Few(keys) => {
                if let Err(place) = keys.binary_search(key) {
                    keys.insert(place, key.clone());
                }
                if keys.len() > FEW_KEYS {
                    *self = Self::Many(std::mem::take(keys).into_iter().collect());
                }
            }
            Self::Many(keys) => drop(keys.insert(key.clone())),
        }
    }

    fn remove(&mut self, key: &ObjectKey) {
        match self {
            Self::Few(keys) => {
                if let Ok(place) = keys.binary_search(key) {
                    keys.remove(place);
                }
            }
            Self::Many(keys) => drop(keys.remove(key)),
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(number: usize, values: &[&str]) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("{number:04}"));
        object.metadata.resource_version = Some(fastrand::u64(1..).to_string());
        object.data = Some(values.iter().map(|value| ((*value).to_owned(), String::new())).collect());
        object
    }

    fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
        objects.iter().filter_map(|object| object.metadata.name.clone()).collect()
    }

    #[test]
    fn index_of_few_and_many_keys_is_in_order_and_follows_changes() {
        let mut indexer = Indexer::default();
        indexer.add_index(
            "keys",
            Box::new(|map: &ConfigMap| map.data.iter().flatten().map(|(key, _)| key.clone()).collect()),
        );
        let count = FEW_KEYS * 3;
        for number in (0..count).rev() {
            indexer.apply_object(object(number, if number % 50 == 0 { &["all", "rare"] } else { &["all"] }));
        }
        let all: Vec<String> = (0..count).map(|number| format!("{number:04}")).collect();
        assert_eq!(names(&indexer.by_index("keys", "all")), all);
        assert_eq!(names(&indexer.by_rarest("keys", ["all", "rare"].into_iter())), ["0000", "0050", "0100", "0150"]);
        assert!(indexer.by_rarest("keys", ["all", "none"].into_iter()).is_empty());
        indexer.apply_object(object(50, &["rare", "other"]));
        indexer.delete_object(object(100, &[]));
        assert_eq!(names(&indexer.by_index("keys", "rare")), ["0000", "0050", "0150"]);
        assert_eq!(indexer.by_index("keys", "all").len(), count - 2);
        indexer.replace_all(vec![object(7, &["other"])]);
        assert!(indexer.by_index("keys", "all").is_empty() && indexer.by_index("keys", "rare").is_empty());
        assert_eq!(names(&indexer.by_index("keys", "other")), ["0007"]);
    }
}
