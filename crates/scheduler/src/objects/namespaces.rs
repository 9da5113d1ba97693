//! Namespaces with their labels, for affinity terms that select namespaces.

use std::sync::Arc;

use client::{CachedView, SharedInformer};
use k8s_openapi::api::core::v1::Namespace;

use crate::{
    intern::intern,
    views::labels::{LabelSet, Selector},
};

/// A namespace's name and labels.
#[derive(Debug)]
pub struct NamespaceView {
    name: Arc<str>,
    uid: Box<str>,
    resource_version: Box<str>,
    labels: LabelSet,
}

impl CachedView for NamespaceView {
    type Object = Namespace;

    fn from_object(object: Namespace) -> Self {
        let meta = object.metadata;
        Self {
            name: intern(meta.name.as_deref().unwrap_or("")),
            uid: meta.uid.unwrap_or_default().into(),
            resource_version: meta.resource_version.unwrap_or_default().into(),
            labels: LabelSet::from_map(meta.labels.as_ref()),
        }
    }

    fn namespace_and_name(&self) -> (&str, &str) {
        ("", &self.name)
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// Finds namespaces.
#[derive(Clone)]
pub struct NamespaceLister {
    namespaces: SharedInformer<NamespaceView>,
}

impl NamespaceLister {
    /// Reads from an informer.
    pub fn new(namespaces: SharedInformer<NamespaceView>) -> Self {
        Self { namespaces }
    }

    /// Returns the labels of a namespace; none if it is not known.
    pub fn labels_of(&self, name: &str) -> LabelSet {
        self.namespaces.get("", name).map(|namespace| namespace.labels.clone()).unwrap_or_default()
    }

    /// Returns the names of the namespaces that a selector selects.
    pub fn select(&self, selector: &Selector) -> Vec<Arc<str>> {
        let namespaces = self.namespaces.list();
        let selected = namespaces.iter().filter(|namespace| selector.matches(&namespace.labels));
        selected.map(|namespace| namespace.name.clone()).collect()
    }

    /// Waits for the first list.
    pub async fn wait_for_sync(&self) {
        self.namespaces.wait_for_cache_sync().await;
    }
}
