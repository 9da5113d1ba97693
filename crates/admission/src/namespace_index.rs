//! Index of the objects of a resource by namespace. It saves plug-ins a lookup where a namespace has none, the usual
//! case.

use std::collections::{BTreeMap, BTreeSet};

use api::Value;
use apiserver_core::{
    cache_index::{CacheIndex, Indexer},
    loopback,
    loopback::ObjectKey,
};

use super::{PluginInit, error::PluginError};

/// Object names of one resource, by namespace; cluster-scoped objects are under "".
pub struct NamespaceIndex(CacheIndex<NamespacedNames>);

#[derive(Default)]
struct NamespacedNames(BTreeMap<String, BTreeSet<String>>);

impl NamespaceIndex {
    /// Builds the index of a built-in resource from the watch cache.
    pub fn new(init: &PluginInit<'_>, (group, version, name): (&str, &str, &str)) -> Result<Self, PluginError> {
        let resource = loopback::find_resource(group, version, name)?;
        Ok(Self(CacheIndex::new(init.cache, &[resource], NamespacedNames::default())?))
    }

    /// Whether a namespace has any object of the resource.
    pub fn has_any(&self, namespace: &str) -> bool {
        self.0.read(|names| names.0.contains_key(namespace))
    }
}

impl Indexer for NamespacedNames {
    fn insert_object(&mut self, key: ObjectKey<'_>, _: &Value) {
        self.0.entry(key.namespace.to_owned()).or_default().insert(key.name.to_owned());
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        if let Some(names) = self.0.get_mut(key.namespace) {
            names.remove(key.name);
            if names.is_empty() {
                self.0.remove(key.namespace);
            }
        }
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
