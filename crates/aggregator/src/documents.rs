//! What clients are told of the whole API: what this server says of itself, with what aggregated servers say. Without any of
//! those it is this server's own word, as it is.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use api::{
    Map, Value,
    discovery::{CachedDocument, DocumentName},
    meta, openapi,
};
use serde_json::json;

use super::{Aggregator, Api, order};

/// Documents that were put together, each with what it was made of.
#[derive(Default)]
pub struct Made(Mutex<HashMap<DocumentName, (Stamp, CachedDocument)>>);

/// What a document was made of: this server's own, the API services, and what the others said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    own: Option<String>,
    apis: u64,
    said: u64,
}

impl Aggregator {
    /// A document; `own` is what this server says itself.
    pub fn page(
        &self,
        name: &DocumentName,
        own: impl Fn(&DocumentName) -> Option<CachedDocument>,
    ) -> Option<CachedDocument> {
        let (apis, generation) = self.apis.read(|apis| (apis.has_remotes().then(|| apis.list()), apis.generation()));
        let Some(apis) = apis.filter(|apis| concerns(name, apis)) else { return own(name) };
        // What is sent as protobuf is made of the same.
        let source = if *name == DocumentName::OpenApi2Protobuf { &DocumentName::OpenApi2 } else { name };
        let page = own(source);
        let hash = page.as_ref().map(|page| page.hash.clone());
        let stamp = Stamp { own: hash, apis: generation, said: self.said.generation() };
        let known = self.made.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some((_, page)) = known.filter(|(known, _)| *known == stamp) {
            return Some(page);
        }
        let made = self.make(name, &apis, page)?;
        self.made.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), (stamp, made.clone()));
        Some(made)
    }

    /// The paths of groups and versions that others answer for.
    pub fn paths(&self) -> Vec<String> {
        let remote = self.all().into_iter().filter(|api| api.remote.is_some());
        remote.flat_map(|api| [format!("/apis/{}", api.group), api.path()]).collect()
    }

    /// Where the documents are that a server alone has: that of its version, and that of a group of its own.
    pub fn documents_of(&self, apis: &[Arc<Api>], api: &Api) -> Map {
        if api.remote.is_none() {
            return Map::new();
        }
        let mut documents = self.said.of(&api.name).map(|words| words.documents.clone()).unwrap_or_default();
        if apis.iter().any(|other| other.remote.is_none() && other.group == api.group) {
            documents.remove(&api.group_document());
        }
        documents
    }

    fn make(&self, name: &DocumentName, apis: &[Arc<Api>], own: Option<CachedDocument>) -> Option<CachedDocument> {
        let own: Option<Value> = own.and_then(|page| serde_json::from_slice(&page.bytes).ok());
        let json = |value: Value| CachedDocument::from_json(&value);
        match name {
            DocumentName::Groups => groups(own?, apis).map(json),
            DocumentName::Group(group) => {
                let of_group = order::grouped(apis).into_iter().find(|apis| apis[0].group == *group)?;
                let mut body = group_of(&of_group);
                body["kind"] = "APIGroup".into();
                body["apiVersion"] = "v1".into();
                Some(json(body))
            }
            DocumentName::Aggregated { .. } => self.aggregated(own?, apis).map(json),
            DocumentName::OpenApi2 => Some(json(self.swagger(own?, apis))),
            DocumentName::OpenApi2Protobuf => {
                Some(CachedDocument::new(openapi::encode_v2_protobuf(&self.swagger(own?, apis))))
            }
            DocumentName::OpenApi3Index => self.index(own?, apis).map(json),
            DocumentName::Resources(..) | DocumentName::OpenApi3(_) => None,
        }
    }

    fn aggregated(&self, mut list: Value, apis: &[Arc<Api>]) -> Option<Value> {
        let items = list.get_mut("items")?.as_array_mut()?;
        for api in apis.iter().filter(|api| api.remote.is_some()) {
            let words = self.said.of(&api.name).and_then(|words| words.resources.clone());
            let entry = words.unwrap_or_else(|| json!({"version": api.version, "freshness": "Stale"}));
            add_version(items, api, entry);
        }
        for item in items.iter_mut().filter(|item| shared(apis, meta::name(item))) {
            let group = meta::name(item).to_owned();
            let priority = |version: &Value| {
                let found = apis.iter().find(|api| api.group == group && version["version"] == api.version.as_str());
                found.map_or(0, |api| api.version_priority)
            };
            let name = |version: &Value| meta::string_at(version, &["version"]).to_owned();
            if let Some(versions) = item.get_mut("versions").and_then(Value::as_array_mut) {
                versions.sort_by(|a, b| order::versions((priority(b), &name(b)), (priority(a), &name(a))));
            }
        }
        items.sort_by_cached_key(|item| {
            let name = meta::name(item).to_owned();
            (std::cmp::Reverse(order::priority(apis, &name)), name)
        });
        Some(list)
    }

    fn swagger(&self, mut own: Value, apis: &[Arc<Api>]) -> Value {
        for api in order::grouped(apis).iter().flatten().filter(|api| api.remote.is_some()) {
            if let Some(other) = self.said.of(&api.name).and_then(|words| words.swagger.clone()) {
                super::swagger::merge(&mut own, &other);
            }
        }
        own
    }

    fn index(&self, mut own: Value, apis: &[Arc<Api>]) -> Option<Value> {
        let paths = own.get_mut("paths")?.as_object_mut()?;
        for api in apis.iter().filter(|api| api.remote.is_some()) {
            paths.extend(self.documents_of(apis, api));
        }
        Some(own)
    }
}

/// Whether others have a say in a document.
fn concerns(name: &DocumentName, apis: &[Arc<Api>]) -> bool {
    match name {
        DocumentName::Group(group) => shared(apis, group),
        // Those of others are theirs to answer for.
        DocumentName::Resources(..) | DocumentName::OpenApi3(_) | DocumentName::Aggregated { core: true, .. } => false,
        _ => true,
    }
}

/// Whether another server answers for a version of a group.
fn shared(apis: &[Arc<Api>], group: &str) -> bool {
    apis.iter().any(|api| api.remote.is_some() && api.group == group)
}

/// `/apis`: this group of groups first, then by priority; what no API service is about comes last.
fn groups(mut own: Value, apis: &[Arc<Api>]) -> Option<Value> {
    let known = own.get_mut("groups")?.as_array_mut()?;
    let mut left = std::mem::take(known);
    let registration = left.iter().position(|group| group["name"] == super::OWN_GROUP);
    known.extend(registration.map(|at| left.remove(at)));
    for of_group in order::grouped(apis).iter().filter(|apis| !apis[0].group.is_empty()) {
        left.retain(|group| group["name"] != of_group[0].group.as_str());
        known.push(group_of(of_group));
    }
    known.extend(left);
    Some(own)
}

fn group_of(apis: &[Arc<Api>]) -> Value {
    let version =
        |api: &Arc<Api>| json!({"groupVersion": format!("{}/{}", api.group, api.version), "version": api.version});
    let versions: Vec<Value> = apis.iter().map(version).collect();
    json!({"name": apis[0].group, "preferredVersion": versions[0], "versions": versions})
}

fn add_version(items: &mut Vec<Value>, api: &Api, entry: Value) {
    let at = items.iter().position(|item| meta::name(item) == api.group).unwrap_or_else(|| {
        items.push(json!({"metadata": {"name": api.group}, "versions": []}));
        items.len() - 1
    });
    let Some(versions) = items[at].get_mut("versions").and_then(Value::as_array_mut) else { return };
    versions.retain(|version| version["version"] != api.version.as_str());
    versions.push(entry);
}
