//! The index of stored API services and the paths that remote ones serve.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Value, meta};
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};

use rustls::client::ResolvesClientCert;

use super::{OWN_GROUP, remote::AggregatedServer};

/// The API service of the core group.
const LEGACY_SERVICE: &str = "v1.";

/// An API service.
#[derive(Clone)]
pub struct ApiService {
    /// Its name: version and group.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// `spec.groupPriorityMinimum`.
    pub group_priority: i64,
    /// `spec.versionPriority`.
    pub version_priority: i64,
    /// Its condition `Available`.
    pub condition: AvailableCondition,
    /// The aggregated server; `None` for a local API service.
    pub remote: Option<Arc<AggregatedServer>>,
}

/// The condition `Available` of an API service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableCondition {
    /// `True`, `False` or `Unknown`; empty if it is not set yet.
    pub status: String,
    /// The machine-readable reason.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The API services by name and path.
pub struct ApiServiceIndex {
    certificate: Option<Arc<dyn ResolvesClientCert>>,
    services: BTreeMap<String, Arc<ApiService>>,
    /// Remote API services by `group/version`.
    by_group_version: HashMap<String, Arc<ApiService>>,
    /// The remote API service of the core group, if any.
    legacy: Option<Arc<ApiService>>,
    generation: u64,
}

impl ApiServiceIndex {
    /// Creates an empty index.
    pub fn new(certificate: Option<Arc<dyn ResolvesClientCert>>) -> Self {
        Self { certificate, services: BTreeMap::new(), by_group_version: HashMap::new(), legacy: None, generation: 0 }
    }

    /// The remote API service of a path.
    pub fn find_remote(&self, path: &str) -> Option<Arc<ApiService>> {
        if let Some(legacy) = &self.legacy
            && (path == "/api" || path.starts_with("/api/"))
        {
            return Some(legacy.clone());
        }
        if self.by_group_version.is_empty() {
            return None;
        }
        let rest = path.strip_prefix("/apis/")?;
        let group = rest.find('/')?;
        let end = rest[group + 1..].find('/').map_or(rest.len(), |end| group + 1 + end);
        self.by_group_version.get(&rest[..end]).cloned()
    }

    /// All API services, by name.
    pub fn list_services(&self) -> Vec<Arc<ApiService>> {
        self.services.values().cloned().collect()
    }

    /// Whether any API service is remote.
    pub fn has_remotes(&self) -> bool {
        !self.by_group_version.is_empty()
    }

    /// A counter of changes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns an API service by name.
    pub fn get_service(&self, name: &str) -> Option<&Arc<ApiService>> {
        self.services.get(name)
    }
}

impl Indexer for ApiServiceIndex {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let before = self.services.get(place.name).and_then(|api| api.remote.as_ref());
        let remote = AggregatedServer::new(&object["spec"], self.certificate.as_ref(), before);
        let api = ApiService::from_object(place.name, object, remote);
        self.services.insert(place.name.to_owned(), Arc::new(api));
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.services.remove(place.name);
    }

    fn clear(&mut self) {
        self.services.clear();
    }

    fn rebuild(&mut self) {
        self.generation += 1;
        let remote = |api: &&Arc<ApiService>| api.remote.is_some() && api.group != OWN_GROUP;
        let path = |api: &Arc<ApiService>| (format!("{}/{}", api.group, api.version), api.clone());
        self.by_group_version = self.services.values().filter(remote).map(path).collect();
        self.legacy = self.services.get(LEGACY_SERVICE).filter(remote).cloned();
    }
}

impl ApiService {
    fn from_object(name: &str, object: &Value, remote: Option<Arc<AggregatedServer>>) -> Self {
        let text = |field: &str| meta::string_at(object, &["spec", field]).to_owned();
        let number = |field: &str| meta::integer_at(object, &["spec", field]);
        let conditions = meta::list_at(object, &["status", "conditions"]);
        let condition = conditions.iter().find(|condition| condition["type"] == "Available");
        Self {
            name: name.to_owned(),
            group: text("group"),
            version: text("version"),
            group_priority: number("groupPriorityMinimum"),
            version_priority: number("versionPriority"),
            condition: condition.map(AvailableCondition::from_object).unwrap_or_default(),
            remote,
        }
    }

    /// The path of the group-version.
    pub fn group_version_path(&self) -> String {
        match self.name.as_str() {
            LEGACY_SERVICE => format!("/api/{}", self.version),
            _ => format!("/apis/{}/{}", self.group, self.version),
        }
    }
}

impl ApiService {
    /// The name of its OpenAPI v3 document.
    pub fn openapi_document(&self) -> String {
        self.group_version_path().trim_start_matches('/').to_owned()
    }

    /// The name of its group's OpenAPI v3 document.
    pub fn group_document(&self) -> String {
        format!("apis/{}", self.group)
    }
}

impl AvailableCondition {
    fn from_object(condition: &Value) -> Self {
        let text = |field: &str| meta::string_at(condition, &[field]).to_owned();
        Self { status: text("status"), reason: text("reason"), message: text("message") }
    }

    /// Whether requests are proxied.
    pub fn is_available(&self) -> bool {
        self.status == "True"
    }
}
