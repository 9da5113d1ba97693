//! A cache of discovery and OpenAPI documents: each is built on first use and shared by all readers, with the hash for
//! its `ETag`.
//!
//! A server has one [`Pages`] for its enabled group-versions.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{AggregatedVersion, aggregated_document, group_document, group_list, resource_list};
use crate::{Value, openapi};

/// An encoded document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The encoded bytes.
    pub bytes: Bytes,
    /// The hash in upper-case hexadecimal, quoted in `ETag` and named by `?hash=`.
    pub hash: String,
}

impl Page {
    /// Hashes and wraps bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = Sha256::digest(&bytes).iter().fold(String::new(), |mut out, byte| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02X}");
            out
        });
        Self { bytes, hash }
    }

    /// Encodes a JSON document.
    pub fn json(value: &Value) -> Self {
        // Encoding a value with string keys cannot fail.
        Self::new(serde_json::to_vec(value).unwrap_or_default())
    }

    /// Wraps bytes with the hash of their source.
    pub fn hashed(bytes: impl Into<Bytes>, hash: String) -> Self {
        Self { bytes: bytes.into(), hash }
    }

    /// The `ETag` header.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// Whether an `If-None-Match` header matches the document.
    pub fn is_known(&self, if_none_match: &str) -> bool {
        let tags = if_none_match.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.map(|tag| tag.trim_matches('"')).any(|tag| tag == "*" || tag == self.hash)
    }
}

/// The name of a cached document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
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
type DocumentSlots = HashMap<Name, Arc<OnceLock<Option<Page>>>>;

/// The document cache.
pub struct Pages {
    served: ServedFilter,
    /// Documents are built once, outside of the lock; concurrent readers wait.
    documents: Mutex<DocumentSlots>,
}

impl Pages {
    /// Creates the cache for the served group-versions.
    pub fn new(served: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { served: Box::new(served), documents: Mutex::default() }
    }

    /// Returns a document; `None` if it does not exist.
    pub fn get(&self, name: &Name) -> Option<Page> {
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
    fn is_served(&self, name: &Name) -> bool {
        match name {
            Name::Group(group) => super::groups(&self.served).contains(&group.as_str()),
            Name::Resources(group, version) => {
                super::group_versions(&self.served).contains(&(group.as_str(), version.as_str()))
            }
            Name::OpenApi3(path) => openapi::has_document(path, &self.served),
            _ => true,
        }
    }

    fn build_document(&self, name: &Name) -> Option<Page> {
        let json = |value: Value| Page::json(&value);
        match name {
            Name::Groups => Some(json(group_list(&self.served))),
            Name::Group(name) => group_document(name, &self.served).map(json),
            Name::Resources(group, version) => resource_list(group, version).map(json),
            Name::Aggregated { core, version } => Some(json(aggregated_document(*core, *version, &self.served))),
            Name::OpenApi2 => Some(json(openapi::v2(&self.served))),
            Name::OpenApi2Protobuf => Some(Page::new(openapi::v2_protobuf(&self.served))),
            Name::OpenApi3Index => Some(json(openapi::index(&self.served))),
            Name::OpenApi3(path) => openapi::document_at(path).map(json),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_built_once_and_shared() {
        let pages = Pages::new(super::super::enabled_by_default);
        let name = Name::Aggregated { core: false, version: AggregatedVersion::V2 };
        let (first, again) = (pages.get(&name).unwrap(), pages.get(&name).unwrap());
        assert_eq!(first.bytes.as_ptr(), again.bytes.as_ptr());
        assert!(first.is_known(&first.etag()) && first.is_known(&format!("W/{}, x", first.etag())));
        assert!(!first.is_known("\"x\"") && first.is_known("*"));
    }

    #[test]
    fn unknown_document_is_not_cached() {
        let pages = Pages::new(super::super::enabled_by_default);
        let names = [
            Name::Group("nope".into()),
            Name::Resources("storage.k8s.io".into(), "v1beta1".into()),
            Name::OpenApi3("apis/storage.k8s.io/v1beta1".into()),
        ];
        assert!(names.iter().all(|name| pages.get(name).is_none()));
        assert!(pages.documents.lock().unwrap().is_empty());
    }

    #[test]
    fn openapi_index_has_document_hashes() {
        let pages = Pages::new(|_, _| true);
        let index: Value = serde_json::from_slice(&pages.get(&Name::OpenApi3Index).unwrap().bytes).unwrap();
        for path in ["apis/apps/v1", "version"] {
            let page = pages.get(&Name::OpenApi3(path.into())).unwrap();
            let url = format!("/openapi/v3/{path}?hash={}", page.hash);
            assert_eq!(index["paths"][path]["serverRelativeURL"], *url);
        }
    }
}
