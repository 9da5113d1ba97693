//! Index of the objects of a resource by namespace. It saves plug-ins a lookup where a namespace has none, the usual
//! case.

use std::collections::{BTreeMap, BTreeSet};

use api::Value;
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};

use super::PluginInit;

/// Object names of one resource, by namespace; cluster-scoped objects are under "".
pub struct NamespaceIndex(CacheIndex<Names>);

#[derive(Default)]
struct Names(BTreeMap<String, BTreeSet<String>>);

impl NamespaceIndex {
    /// Builds the index of a built-in resource from the watch cache.
    pub fn of(parts: &PluginInit<'_>, (group, version, name): (&str, &str, &str)) -> Result<Self, String> {
        let resource = loopback::find_resource(group, version, name).map_err(|status| status.message)?;
        CacheIndex::new(parts.cache, &[resource], Names::default()).map(Self).map_err(|error| error.to_string())
    }

    /// Whether a namespace has any object of the resource.
    pub fn has_some(&self, namespace: &str) -> bool {
        self.0.read(|names| names.0.contains_key(namespace))
    }

    /// Whether an object of that name exists.
    pub fn has(&self, namespace: &str, name: &str) -> bool {
        self.0.read(|names| names.0.get(namespace).is_some_and(|names| names.contains(name)))
    }
}

impl Indexer for Names {
    fn insert_object(&mut self, place: ObjectKey<'_>, _: &Value) {
        self.0.entry(place.namespace.to_owned()).or_default().insert(place.name.to_owned());
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        if let Some(names) = self.0.get_mut(place.namespace) {
            names.remove(place.name);
            if names.is_empty() {
                self.0.remove(place.namespace);
            }
        }
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
