//! Documents that a server publishes about itself, as bytes: each is made when it is first asked for, kept, and shared by all
//! who read it, with the tag by which clients tell whether they have it already.
//!
//! A server keeps one [`Pages`] for the group-versions that it serves.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{AggregatedVersion, aggregated, group, group_list, resource_list};
use crate::{Value, openapi};

/// A document as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The document.
    pub bytes: Bytes,
    /// A hash of it, in capital letters: what `ETag` quotes and `?hash=` names.
    pub hash: String,
}

impl Page {
    /// A document of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let hash = Sha256::digest(&bytes).iter().fold(String::new(), |mut out, byte| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02X}");
            out
        });
        Self { bytes, hash }
    }

    /// A document of this value.
    pub fn json(value: &Value) -> Self {
        // A value can be written: its keys are texts.
        Self::new(serde_json::to_vec(value).unwrap_or_default())
    }

    /// A document that is known by the hash of what it is made of.
    pub fn hashed(bytes: impl Into<Bytes>, hash: String) -> Self {
        Self { bytes: bytes.into(), hash }
    }

    /// The value of the header `ETag`.
    pub fn etag(&self) -> String {
        format!("\"{}\"", self.hash)
    }

    /// Whether a client that sends this as `If-None-Match` has the document already.
    pub fn is_known(&self, if_none_match: &str) -> bool {
        let tags = if_none_match.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        tags.map(|tag| tag.trim_matches('"')).any(|tag| tag == "*" || tag == self.hash)
    }
}

/// Which document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1` and `/apis/<group>/<version>`
    Resources(String, String),
    /// The aggregated form of `/api`, or of `/apis`.
    Aggregated {
        /// `/api`
        core: bool,
        /// In which version.
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

type Served = Box<dyn Fn(&str, &str) -> bool + Send + Sync>;
type Slots = HashMap<Name, Arc<OnceLock<Option<Page>>>>;

/// The documents of a server.
pub struct Pages {
    served: Served,
    /// A document is made outside of the lock, once, while who else wants it waits.
    pages: Mutex<Slots>,
}

impl Pages {
    /// Documents about the served group-versions.
    pub fn new(served: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { served: Box::new(served), pages: Mutex::default() }
    }

    /// A document; `None` if there is none of that name.
    pub fn get(&self, name: &Name) -> Option<Page> {
        let known = self.lock().get(name).cloned();
        let page = match known {
            Some(page) => page,
            None if !self.exists(name) => return None,
            None => self.lock().entry(name.clone()).or_default().clone(),
        };
        page.get_or_init(|| self.make(name)).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Nothing is done under the lock that could leave the map in between.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a document can be there: what clients make up is not to be remembered.
    fn exists(&self, name: &Name) -> bool {
        match name {
            Name::Group(group) => super::groups(&self.served).contains(&group.as_str()),
            Name::Resources(group, version) => {
                super::group_versions(&self.served).contains(&(group.as_str(), version.as_str()))
            }
            Name::OpenApi3(path) => openapi::has_document(path, &self.served),
            _ => true,
        }
    }

    fn make(&self, name: &Name) -> Option<Page> {
        let json = |value: Value| Page::json(&value);
        match name {
            Name::Groups => Some(json(group_list(&self.served))),
            Name::Group(name) => group(name, &self.served).map(json),
            Name::Resources(group, version) => resource_list(group, version).map(json),
            Name::Aggregated { core, version } => Some(json(aggregated(*core, *version, &self.served))),
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
    fn documents_are_made_once_and_shared() {
        let pages = Pages::new(super::super::enabled_by_default);
        let name = Name::Aggregated { core: false, version: AggregatedVersion::V2 };
        let (first, again) = (pages.get(&name).unwrap(), pages.get(&name).unwrap());
        assert_eq!(first.bytes.as_ptr(), again.bytes.as_ptr());
        assert!(first.is_known(&first.etag()) && first.is_known(&format!("W/{}, x", first.etag())));
        assert!(!first.is_known("\"x\"") && first.is_known("*"));
    }

    #[test]
    fn what_is_not_there_is_not_remembered() {
        let pages = Pages::new(super::super::enabled_by_default);
        let names = [
            Name::Group("nope".into()),
            Name::Resources("storage.k8s.io".into(), "v1beta1".into()),
            Name::OpenApi3("apis/storage.k8s.io/v1beta1".into()),
        ];
        assert!(names.iter().all(|name| pages.get(name).is_none()));
        assert!(pages.pages.lock().unwrap().is_empty());
    }

    #[test]
    fn the_index_names_the_hashes_of_the_documents() {
        let pages = Pages::new(|_, _| true);
        let index: Value = serde_json::from_slice(&pages.get(&Name::OpenApi3Index).unwrap().bytes).unwrap();
        for path in ["apis/apps/v1", "version"] {
            let page = pages.get(&Name::OpenApi3(path.into())).unwrap();
            let url = format!("/openapi/v3/{path}?hash={}", page.hash);
            assert_eq!(index["paths"][path]["serverRelativeURL"], *url);
        }
    }
}
