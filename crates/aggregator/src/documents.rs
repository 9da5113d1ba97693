//! Discovery and OpenAPI documents of the whole API: the server's own merged with those of aggregated servers. Without
//! aggregated servers its own documents are returned unchanged.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::{Map, Value, cached_document::CachedDocument, document_cache::DocumentName, meta, openapi};
use serde_json::json;

use super::{Aggregator, ApiService, order};

/// Cache of merged documents, each with the versions of its sources.
#[derive(Default)]
pub struct MergedDocuments(Mutex<HashMap<DocumentName, (DocumentSources, CachedDocument)>>);

/// Versions of a merged document's sources: the own document, the API services and the discovery cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DocumentSources {
    own: Option<String>,
    apis: u64,
    said: u64,
}

impl Aggregator {
    /// Returns a merged document; `own` returns the server's own documents.
    pub fn merged_document(
        &self,
        name: &DocumentName,
        own: impl Fn(&DocumentName) -> Option<CachedDocument>,
    ) -> Option<CachedDocument> {
        let (apis, generation) =
            self.apis.read(|apis| (apis.has_remotes().then(|| apis.list_services()), apis.generation()));
        let Some(apis) = apis.filter(|apis| includes_remotes(name, apis)) else { return own(name) };
        // The protobuf document is built from the JSON one.
        let source = if *name == DocumentName::OpenApi2Protobuf { &DocumentName::OpenApi2 } else { name };
        let page = own(source);
        let hash = page.as_ref().map(|page| page.hash.clone());
        let stamp = DocumentSources { own: hash, apis: generation, said: self.discovery_cache.generation() };
        let known = self.merged_documents.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some((_, page)) = known.filter(|(known, _)| *known == stamp) {
            return Some(page);
        }
        let made = self.build_document(name, &apis, page)?;
        self.merged_documents
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), (stamp, made.clone()));
        Some(made)
    }

    /// The paths of remote groups and versions.
    pub fn remote_paths(&self) -> Vec<String> {
        let remote = self.list_services().into_iter().filter(|api| api.remote.is_some());
        remote.flat_map(|api| [format!("/apis/{}", api.group), api.group_version_path()]).collect()
    }

    /// The OpenAPI v3 index entries of an aggregated server: its version and, if no local version exists, its group.
    pub fn documents_of(&self, apis: &[Arc<ApiService>], api: &ApiService) -> Map {
        if api.remote.is_none() {
            return Map::new();
        }
        let mut documents =
            self.discovery_cache.get_documents(&api.name).map(|words| words.openapi_paths.clone()).unwrap_or_default();
        if apis.iter().any(|other| other.remote.is_none() && other.group == api.group) {
            documents.remove(&api.group_document());
        }
        documents
    }

    fn build_document(
        &self,
        name: &DocumentName,
        apis: &[Arc<ApiService>],
        own: Option<CachedDocument>,
    ) -> Option<CachedDocument> {
        let own: Option<Value> = own.and_then(|page| serde_json::from_slice(&page.bytes).ok());
        let json = |value: Value| CachedDocument::from_json(&value);
        match name {
            DocumentName::Groups => build_groups(own?, apis).map(json),
            DocumentName::Group(group) => {
                let of_group = order::group_by_priority(apis).into_iter().find(|apis| apis[0].group == *group)?;
                let mut body = build_group(&of_group);
                body["kind"] = "APIGroup".into();
                body["apiVersion"] = "v1".into();
                Some(json(body))
            }
            DocumentName::Aggregated { .. } => self.build_aggregated(own?, apis).map(json),
            DocumentName::OpenApi2 => Some(json(self.build_swagger(own?, apis))),
            DocumentName::OpenApi2Protobuf => {
                Some(CachedDocument::new(openapi::encode_v2_protobuf(&self.build_swagger(own?, apis))))
            }
            DocumentName::OpenApi3Index => self.build_openapi_v3_index(own?, apis).map(json),
            DocumentName::Resources(..) | DocumentName::OpenApi3(_) => None,
        }
    }

    fn build_aggregated(&self, mut list: Value, apis: &[Arc<ApiService>]) -> Option<Value> {
        let items = list.get_mut("items")?.as_array_mut()?;
        for api in apis.iter().filter(|api| api.remote.is_some()) {
            let words = self.discovery_cache.get_documents(&api.name).and_then(|words| words.resources.clone());
            let entry = words.unwrap_or_else(|| json!({"version": api.version, "freshness": "Stale"}));
            add_version(items, api, entry);
        }
        for item in items.iter_mut().filter(|item| has_remote_version(apis, meta::name(item))) {
            let group = meta::name(item).to_owned();
            let priority = |version: &Value| {
                let found = apis.iter().find(|api| api.group == group && version["version"] == api.version.as_str());
                found.map_or(0, |api| api.version_priority)
            };
            let name = |version: &Value| meta::string_at(version, &["version"]).to_owned();
            if let Some(versions) = item.get_mut("versions").and_then(Value::as_array_mut) {
                versions.sort_by(|a, b| order::compare_versions((priority(b), &name(b)), (priority(a), &name(a))));
            }
        }
        items.sort_by_cached_key(|item| {
            let name = meta::name(item).to_owned();
            (std::cmp::Reverse(order::group_priority(apis, &name)), name)
        });
        Some(list)
    }

    fn build_swagger(&self, mut own: Value, apis: &[Arc<ApiService>]) -> Value {
        for api in order::group_by_priority(apis).iter().flatten().filter(|api| api.remote.is_some()) {
            if let Some(other) = self.discovery_cache.get_documents(&api.name).and_then(|words| words.swagger.clone()) {
                super::swagger::merge_document(&mut own, &other);
            }
        }
        own
    }

    fn build_openapi_v3_index(&self, mut own: Value, apis: &[Arc<ApiService>]) -> Option<Value> {
        let paths = own.get_mut("paths")?.as_object_mut()?;
        for api in apis.iter().filter(|api| api.remote.is_some()) {
            paths.extend(self.documents_of(apis, api));
        }
        Some(own)
    }
}

/// Whether a document includes aggregated servers.
fn includes_remotes(name: &DocumentName, apis: &[Arc<ApiService>]) -> bool {
    match name {
        DocumentName::Group(group) => has_remote_version(apis, group),
        // Requests for these documents of remote API services are proxied.
        DocumentName::Resources(..) | DocumentName::OpenApi3(_) | DocumentName::Aggregated { core: true, .. } => false,
        _ => true,
    }
}

/// Whether a version of a group is remote.
fn has_remote_version(apis: &[Arc<ApiService>], group: &str) -> bool {
    apis.iter().any(|api| api.remote.is_some() && api.group == group)
}

/// `/apis`: `apiregistration.k8s.io` first, then by priority; groups without an API service last.
fn build_groups(mut own: Value, apis: &[Arc<ApiService>]) -> Option<Value> {
    let known = own.get_mut("groups")?.as_array_mut()?;
    let mut left = std::mem::take(known);
    let registration = left.iter().position(|group| group["name"] == super::OWN_GROUP);
    known.extend(registration.map(|at| left.remove(at)));
    for of_group in order::group_by_priority(apis).iter().filter(|apis| !apis[0].group.is_empty()) {
        left.retain(|group| group["name"] != of_group[0].group.as_str());
        known.push(build_group(of_group));
    }
    known.extend(left);
    Some(own)
}

fn build_group(apis: &[Arc<ApiService>]) -> Value {
    let version = |api: &Arc<ApiService>| json!({"groupVersion": format!("{}/{}", api.group, api.version), "version": api.version});
    let versions: Vec<Value> = apis.iter().map(version).collect();
    json!({"name": apis[0].group, "preferredVersion": versions[0], "versions": versions})
}

fn add_version(items: &mut Vec<Value>, api: &ApiService, entry: Value) {
    let at = items.iter().position(|item| meta::name(item) == api.group).unwrap_or_else(|| {
        items.push(json!({"metadata": {"name": api.group}, "versions": []}));
        items.len() - 1
    });
    let Some(versions) = items[at].get_mut("versions").and_then(Value::as_array_mut) else { return };
    versions.retain(|version| version["version"] != api.version.as_str());
    versions.push(entry);
}
