//! The API services that are stored, and which paths are somebody else's.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use api::{Value, meta};
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};

use super::{ClientCertificate, OWN_GROUP, remote::Remote};

/// The service of the group without a name, which is answered for as a whole.
const LEGACY: &str = "v1.";

/// An API service.
#[derive(Clone)]
pub struct Api {
    /// Its name: version and group.
    pub name: String,
    /// Its group.
    pub group: String,
    /// Its version.
    pub version: String,
    /// Where its group comes among others.
    pub group_priority: i64,
    /// Where its version comes in its group.
    pub version_priority: i64,
    /// What its condition says of it.
    pub condition: Condition,
    /// Who answers; `None`: this server itself.
    pub remote: Option<Arc<Remote>>,
}

/// Whether a service is available, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `True`, `False` or `Unknown`; empty: nobody said yet.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why.
    pub message: String,
}

/// All of them.
pub struct Apis {
    certificate: Option<ClientCertificate>,
    known: BTreeMap<String, Arc<Api>>,
    /// Those of other servers, by `group/version`.
    elsewhere: HashMap<String, Arc<Api>>,
    /// Who answers below `/api`, if it is somebody else.
    legacy: Option<Arc<Api>>,
    generation: u64,
}

impl Apis {
    /// None yet.
    pub fn new(certificate: Option<ClientCertificate>) -> Self {
        Self { certificate, known: BTreeMap::new(), elsewhere: HashMap::new(), legacy: None, generation: 0 }
    }

    /// Who answers for a path.
    pub fn elsewhere(&self, path: &str) -> Option<Arc<Api>> {
        if let Some(legacy) = &self.legacy
            && (path == "/api" || path.starts_with("/api/"))
        {
            return Some(legacy.clone());
        }
        if self.elsewhere.is_empty() {
            return None;
        }
        let rest = path.strip_prefix("/apis/")?;
        let group = rest.find('/')?;
        let end = rest[group + 1..].find('/').map_or(rest.len(), |end| group + 1 + end);
        self.elsewhere.get(&rest[..end]).cloned()
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<Arc<Api>> {
        self.known.values().cloned().collect()
    }

    /// Whether any of them is another server's.
    pub fn has_remotes(&self) -> bool {
        !self.elsewhere.is_empty()
    }

    /// Grows with every change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Arc<Api>> {
        self.known.get(name)
    }
}

impl Indexer for Apis {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let before = self.known.get(place.name).and_then(|api| api.remote.as_ref());
        let remote = Remote::new(&object["spec"], self.certificate.as_ref(), before);
        let api = Api::of(place.name, object, remote);
        self.known.insert(place.name.to_owned(), Arc::new(api));
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        self.known.remove(place.name);
    }

    fn clear(&mut self) {
        self.known.clear();
    }

    fn rebuild(&mut self) {
        self.generation += 1;
        let remote = |api: &&Arc<Api>| api.remote.is_some() && api.group != OWN_GROUP;
        let path = |api: &Arc<Api>| (format!("{}/{}", api.group, api.version), api.clone());
        self.elsewhere = self.known.values().filter(remote).map(path).collect();
        self.legacy = self.known.get(LEGACY).filter(remote).cloned();
    }
}

impl Api {
    fn of(name: &str, object: &Value, remote: Option<Arc<Remote>>) -> Self {
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
            condition: condition.map(Condition::of).unwrap_or_default(),
            remote,
        }
    }

    /// Where it is found.
    pub fn path(&self) -> String {
        match self.name.as_str() {
            LEGACY => format!("/api/{}", self.version),
            _ => format!("/apis/{}/{}", self.group, self.version),
        }
    }
}

impl Api {
    /// The name of its document of OpenAPI 3.
    pub fn document(&self) -> String {
        self.path().trim_start_matches('/').to_owned()
    }

    /// The name of the document of its group.
    pub fn group_document(&self) -> String {
        format!("apis/{}", self.group)
    }
}

impl Condition {
    fn of(condition: &Value) -> Self {
        let text = |field: &str| meta::string_at(condition, &[field]).to_owned();
        Self { status: text("status"), reason: text("reason"), message: text("message") }
    }

    /// Whether requests are passed on.
    pub fn is_available(&self) -> bool {
        self.status == "True"
    }
}
