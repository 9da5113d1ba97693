//! Discovery and OpenAPI documents with custom resources added to the built-in ones. Each document is built on its
//! first request after a change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use api::{
    Value,
    cached_document::CachedDocument,
    discovery,
    document_cache::{self, DocumentName},
};
use serde_json::json;

use super::ServedResources;
use crate::served_openapi;

/// Cache of discovery and OpenAPI documents that include custom resources.
#[derive(Default)]
pub struct CrdDocumentCache {
    made: Mutex<BuiltDocuments>,
}

#[derive(Default)]
struct BuiltDocuments {
    generation: u64,
    pages: HashMap<DocumentName, Arc<OnceLock<Option<CachedDocument>>>>,
}

impl CrdDocumentCache {
    /// Returns a document; `None` if it does not exist.
    pub fn get(
        &self,
        built_in: &document_cache::DocumentCache,
        served: &Arc<ServedResources>,
        name: &DocumentName,
    ) -> Option<CachedDocument> {
        if served.groups().is_empty() || matches!(name, DocumentName::Aggregated { core: true, .. }) {
            return built_in.get(name);
        }
        let document =
            self.slot(served.generation, name).get_or_init(|| build_document(built_in, served, name)).clone();
        if document.is_none() {
            // Names of nonexistent documents come from clients and must not fill the cache.
            self.lock().pages.remove(name);
        }
        document
    }

    /// Returns the cache slot of a document. The document is built once, outside the lock; concurrent requests wait for
    /// it.
    fn slot(&self, generation: u64, name: &DocumentName) -> Arc<OnceLock<Option<CachedDocument>>> {
        let mut made = self.lock();
        if made.generation < generation {
            *made = BuiltDocuments { generation, pages: HashMap::new() };
        }
        match made.generation == generation {
            true => made.pages.entry(name.clone()).or_default().clone(),
            // The caller holds an outdated snapshot of resources; its document is not cached.
            false => Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BuiltDocuments> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn build_document(
    built_in: &document_cache::DocumentCache,
    served: &ServedResources,
    name: &DocumentName,
) -> Option<CachedDocument> {
    let json = |value: Value| CachedDocument::from_json(&value);
    match name {
        DocumentName::Group(group) => match built_in.get(name) {
            None => Some(json(discovery::into_group_document(discovery::group_entry(
                group,
                group_versions(served, group)?,
            )?))),
            known => known,
        },
        DocumentName::Resources(group, version) => match built_in.get(name) {
            None => discovery::resource_list_from(served.resources_of_version(group, version).into_iter()).map(json),
            known => known,
        },
        DocumentName::Groups => {
            let groups = served.groups().iter().filter_map(|(group, versions)| discovery::group_entry(group, versions));
            append_to_list(&built_in.get(name)?, "groups", groups).map(json)
        }
        DocumentName::Aggregated { .. } => {
            let groups = served.groups().iter().map(|(group, versions)| aggregated_group(served, group, versions));
            append_to_list(&built_in.get(name)?, "items", groups).map(json)
        }
        DocumentName::OpenApi3Index => Some(json(served_openapi::v3_index(&built_in.get(name)?, served)?)),
        DocumentName::OpenApi3(path) => served_openapi::v3_document(path, served).or_else(|| built_in.get(name)),
        DocumentName::OpenApi2 => Some(CachedDocument::new(served_openapi::v2_document(&built_in.get(name)?, served)?)),
        DocumentName::OpenApi2Protobuf => {
            let document = served_openapi::v2_document(&built_in.get(&DocumentName::OpenApi2)?, served)?;
            Some(CachedDocument::new(api::openapi::encode_v2_protobuf(&serde_json::from_str(&document).ok()?)))
        }
    }
}

fn group_versions<'a>(served: &'a ServedResources, group: &str) -> Option<&'a [&'static str]> {
    served.groups().iter().find(|(name, _)| *name == group).map(|(_, versions)| versions.as_slice())
}

fn aggregated_group(served: &ServedResources, group: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| {
        discovery::aggregated_version_from(version, served.resources_of_version(group, version).into_iter())
    };
    json!({"metadata": {"name": group}, "versions": versions.iter().map(version).collect::<Vec<_>>()})
}

/// Appends entries to a list of a document.
fn append_to_list(document: &CachedDocument, list: &str, more: impl Iterator<Item = Value>) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(&document.bytes).ok()?;
    document.get_mut(list)?.as_array_mut()?.extend(more);
    Some(document)
}
