//! Discovery and OpenAPI documents with custom resources added to the built-in ones. Each document is built on its
//! first request after a change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use api::{
    Value,
    discovery::{self, CachedDocument, DocumentName},
};
use serde_json::json;

use super::Rows;
use crate::served_openapi;

/// Cache of discovery and OpenAPI documents that include custom resources.
#[derive(Default)]
pub struct Pages {
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    generation: u64,
    pages: HashMap<DocumentName, Arc<OnceLock<Option<CachedDocument>>>>,
}

impl Pages {
    /// Returns a document; `None` if it does not exist.
    pub fn get(
        &self,
        built_in: &discovery::DocumentCache,
        rows: &Arc<Rows>,
        name: &DocumentName,
    ) -> Option<CachedDocument> {
        if rows.groups().is_empty() || matches!(name, DocumentName::Aggregated { core: true, .. }) {
            return built_in.get(name);
        }
        let page = self.slot(rows.generation, name).get_or_init(|| make(built_in, rows, name)).clone();
        if page.is_none() {
            // Names of nonexistent documents come from clients and must not fill the cache.
            self.lock().pages.remove(name);
        }
        page
    }

    /// Returns the cache slot of a document. The document is built once, outside the lock; concurrent requests wait for
    /// it.
    fn slot(&self, generation: u64, name: &DocumentName) -> Arc<OnceLock<Option<CachedDocument>>> {
        let mut made = self.lock();
        if made.generation < generation {
            *made = Made { generation, pages: HashMap::new() };
        }
        match made.generation == generation {
            true => made.pages.entry(name.clone()).or_default().clone(),
            // The caller holds an outdated snapshot of resources; its document is not cached.
            false => Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make(built_in: &discovery::DocumentCache, rows: &Rows, name: &DocumentName) -> Option<CachedDocument> {
    let json = |value: Value| CachedDocument::from_json(&value);
    match name {
        DocumentName::Group(group) => match built_in.get(name) {
            None => Some(json(discovery::into_group_document(discovery::group_entry(group, versions(rows, group)?)?))),
            known => known,
        },
        DocumentName::Resources(group, version) => match built_in.get(name) {
            None => discovery::resource_list_from(rows.of_version(group, version).into_iter()).map(json),
            known => known,
        },
        DocumentName::Groups => {
            let groups = rows.groups().iter().filter_map(|(group, versions)| discovery::group_entry(group, versions));
            added(&built_in.get(name)?, "groups", groups).map(json)
        }
        DocumentName::Aggregated { .. } => {
            let groups = rows.groups().iter().map(|(group, versions)| aggregated(rows, group, versions));
            added(&built_in.get(name)?, "items", groups).map(json)
        }
        DocumentName::OpenApi3Index => Some(json(served_openapi::index(&built_in.get(name)?, rows)?)),
        DocumentName::OpenApi3(path) => served_openapi::document(path, rows).or_else(|| built_in.get(name)),
        DocumentName::OpenApi2 => Some(CachedDocument::new(served_openapi::v2(&built_in.get(name)?, rows)?)),
        DocumentName::OpenApi2Protobuf => {
            let document = served_openapi::v2(&built_in.get(&DocumentName::OpenApi2)?, rows)?;
            Some(CachedDocument::new(api::openapi::encode_v2_protobuf(&serde_json::from_str(&document).ok()?)))
        }
    }
}

fn versions<'a>(rows: &'a Rows, group: &str) -> Option<&'a [&'static str]> {
    rows.groups().iter().find(|(name, _)| *name == group).map(|(_, versions)| versions.as_slice())
}

fn aggregated(rows: &Rows, group: &str, versions: &[&str]) -> Value {
    let version =
        |version: &&str| discovery::aggregated_version_from(version, rows.of_version(group, version).into_iter());
    json!({"metadata": {"name": group}, "versions": versions.iter().map(version).collect::<Vec<_>>()})
}

/// Appends entries to a list of a document.
fn added(page: &CachedDocument, list: &str, more: impl Iterator<Item = Value>) -> Option<Value> {
    let mut document: Value = serde_json::from_slice(&page.bytes).ok()?;
    document.get_mut(list)?.as_array_mut()?.extend(more);
    Some(document)
}
