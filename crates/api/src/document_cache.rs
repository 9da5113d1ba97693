//! A cache of discovery and OpenAPI documents: each is built on first use and shared by all readers, with the hash for
//! its `ETag`.
//!
//! A server has one [`DocumentCache`] for its enabled group-versions.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    Value,
    cached_document::CachedDocument,
    discovery::{self, AggregatedVersion, aggregated_document, group_document, group_list, resource_list},
    openapi,
};

/// The name of a cached document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DocumentName {
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1` and `/apis/<group>/<version>`
    Resources(String, String),
    /// Aggregated discovery of `/api` or `/apis`.
    Aggregated {
        /// `/api`
        core: bool,
        /// The version of the document.
        version: AggregatedVersion,
    },
    /// `/openapi/v2`
    OpenApi2,
    /// `/openapi/v2` in protobuf.
    OpenApi2Protobuf,
    /// `/openapi/v3`
    OpenApi3Index,
    /// A document at a path below `/openapi/v3/`.
    OpenApi3(String),
}

type ServedFilter = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;
type DocumentSlots = HashMap<DocumentName, Arc<OnceLock<Option<CachedDocument>>>>;

/// The document cache.
pub struct DocumentCache {
    served: ServedFilter,
    /// Documents are built once, outside of the lock; concurrent readers wait.
    documents: Mutex<DocumentSlots>,
}

impl DocumentCache {
    /// Creates the cache for the served group-versions.
    pub fn new(served: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { served: Box::new(served), documents: Mutex::default() }
    }

    /// Returns a document; `None` if it does not exist.
    pub fn get(&self, name: &DocumentName) -> Option<CachedDocument> {
        let known = self.lock().get(name).cloned();
        let page = match known {
            Some(page) => page,
            None if !self.is_served(name) => return None,
            None => self.lock().entry(name.clone()).or_default().clone(),
        };
        page.get_or_init(|| self.build_document(name)).clone()
    }

    fn lock(&self) -> MutexGuard<'_, DocumentSlots> {
        // A panic cannot leave the map inconsistent.
        self.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the document exists: unknown names from clients are not cached.
    fn is_served(&self, name: &DocumentName) -> bool {
        match name {
            DocumentName::Group(group) => discovery::served_groups(&self.served).contains(&group.as_str()),
            DocumentName::Resources(group, version) => {
                discovery::served_group_versions(&self.served).contains(&(group.as_str(), version.as_str()))
            }
            DocumentName::OpenApi3(path) => openapi::has_v3_document(path, &self.served),
            _ => true,
        }
    }

    fn build_document(&self, name: &DocumentName) -> Option<CachedDocument> {
        let json = |value: Value| CachedDocument::from_json(&value);
        match name {
            DocumentName::Groups => Some(json(group_list(&self.served))),
            DocumentName::Group(name) => group_document(name, &self.served).map(json),
            DocumentName::Resources(group, version) => resource_list(group, version).map(json),
            DocumentName::Aggregated { core, version } => {
                Some(json(aggregated_document(*core, *version, &self.served)))
            }
            DocumentName::OpenApi2 => Some(json(openapi::v2_document(&self.served))),
            DocumentName::OpenApi2Protobuf => Some(CachedDocument::new(openapi::v2_protobuf(&self.served))),
            DocumentName::OpenApi3Index => Some(json(openapi::v3_index(&self.served))),
            DocumentName::OpenApi3(path) => openapi::v3_document(path).map(json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_built_once_and_shared() {
        let pages = DocumentCache::new(discovery::enabled_by_default);
        let name = DocumentName::Aggregated { core: false, version: AggregatedVersion::V2 };
        let (first, again) = (pages.get(&name).unwrap(), pages.get(&name).unwrap());
        assert_eq!(first.bytes.as_ptr(), again.bytes.as_ptr());
        assert!(first.matches_etag(&first.etag()) && first.matches_etag(&format!("W/{}, x", first.etag())));
        assert!(!first.matches_etag("\"x\"") && first.matches_etag("*"));
    }

    #[test]
    fn unknown_document_is_not_cached() {
        let pages = DocumentCache::new(discovery::enabled_by_default);
        let names = [
            DocumentName::Group("nope".into()),
            DocumentName::Resources("storage.k8s.io".into(), "v1beta1".into()),
            DocumentName::OpenApi3("apis/storage.k8s.io/v1beta1".into()),
        ];
        assert!(names.iter().all(|name| pages.get(name).is_none()));
        assert!(pages.documents.lock().unwrap().is_empty());
    }

    #[test]
    fn openapi_index_has_document_hashes() {
        let pages = DocumentCache::new(|_, _| true);
        let index: Value = serde_json::from_slice(&pages.get(&DocumentName::OpenApi3Index).unwrap().bytes).unwrap();
        for path in ["apis/apps/v1", "version"] {
            let page = pages.get(&DocumentName::OpenApi3(path.into())).unwrap();
            let url = format!("/openapi/v3/{path}?hash={}", page.hash);
            assert_eq!(index["paths"][path]["serverRelativeURL"], *url);
        }
    }

    #[test]
    fn resources_are_encoded_in_upstreams_order() {
        let cache = DocumentCache::new(discovery::enabled_by_default);
        let document = cache.get(&DocumentName::Resources("apps".into(), "v1".into())).unwrap();
        let text = String::from_utf8_lossy(&document.bytes);
        let deployments = concat!(
            r#"{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","verbs":["create","#,
            r#""delete","deletecollection","get","list","patch","update","watch"],"shortNames":["deploy"],"categories":["all"],"#,
        );
        assert!(
            text.starts_with(r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":["#)
        );
        assert!(text.contains(deployments) && text.ends_with("]}\n"), "{text}");
        let document = cache.get(&DocumentName::Aggregated { core: true, version: AggregatedVersion::V2 }).unwrap();
        let head = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":"#;
        assert!(document.bytes.starts_with(head.as_bytes()));
    }
}
