//! The indexed set of objects behind an informer, and what each watch event changes in it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use kube::Resource;

use crate::informer::Change;

/// `namespace/name`; the namespace is empty for cluster-scoped kinds.
type Key = Arc<str>;
type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Objects by name, and by the values of each index. An object is in an index exactly when it is in `objects`.
pub(crate) struct Cache<K> {
    objects: HashMap<Key, Arc<K>>,
    indexes: HashMap<&'static str, Index<K>>,
}

struct Index<K> {
    values: IndexFn<K>,
    entries: HashMap<String, BTreeMap<Key, Arc<K>>>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: HashMap::new(), indexes: HashMap::new() }
    }
}

impl<K: Resource> Cache<K> {
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.objects.get(format!("{namespace}/{name}").as_str()).cloned()
    }

    pub(crate) fn list(&self) -> Vec<Arc<K>> {
        self.objects.values().cloned().collect()
    }

    pub(crate) fn add_index(&mut self, name: &'static str, values: IndexFn<K>) {
        let mut index = Index { values, entries: HashMap::new() };
        self.objects.iter().for_each(|(key, object)| index.insert(key, object));
        self.indexes.insert(name, index);
    }

    pub(crate) fn by_index(&self, name: &str, value: &str) -> Vec<Arc<K>> {
        let entry = self.indexes.get(name).and_then(|index| index.entries.get(value));
        entry.map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// Puts a newer version in. An object that was deleted and made again under its name is told as two changes.
    pub(crate) fn apply(&mut self, object: K) -> Vec<Change<K>> {
        let key = key_of(&object);
        let new = Arc::new(object);
        let old = self.objects.get(&key).cloned();
        if let Some(old) = &old {
            if same_version(old.as_ref(), new.as_ref()) {
                return Vec::new();
            }
            self.indexes.values_mut().for_each(|index| index.remove(&key, old));
        }
        self.indexes.values_mut().for_each(|index| index.insert(&key, &new));
        self.objects.insert(key, new.clone());
        match old {
            None => vec![Change::Added(new)],
            Some(old) if old.meta().uid == new.meta().uid => vec![Change::Updated { old, new }],
            Some(old) => vec![Change::Deleted(old), Change::Added(new)],
        }
    }

    /// Takes an object out; the change carries the state that the delete event showed.
    pub(crate) fn delete(&mut self, object: K) -> Vec<Change<K>> {
        match self.take(&key_of(&object)) {
            Some(_) => vec![Change::Deleted(Arc::new(object))],
            None => Vec::new(),
        }
    }

    /// Makes the set equal to a complete list.
    pub(crate) fn replace(&mut self, objects: Vec<K>) -> Vec<Change<K>> {
        let listed: HashSet<Key> = objects.iter().map(key_of).collect();
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(*key)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|key| self.take(key)).map(Change::Deleted).collect();
        changes.extend(objects.into_iter().flat_map(|object| self.apply(object)));
        changes
    }

    fn take(&mut self, key: &str) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        self.indexes.values_mut().for_each(|index| index.remove(key, &old));
        Some(old)
    }
}

impl<K> Index<K> {
    fn insert(&mut self, key: &Key, object: &Arc<K>) {
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

fn key_of<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    format!("{}/{}", meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or("")).into()
}

fn same_version<K: Resource>(old: &K, new: &K) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.uid == new.uid && old.resource_version.is_some() && old.resource_version == new.resource_version
}
