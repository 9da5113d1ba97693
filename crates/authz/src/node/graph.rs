//! Which nodes an object is for: those of the pods that refer to it, directly or through a claim and its volume.
//!
//! ```text
//! node ← pod ← secret, config map, service account, resource claim, claim ← volume ← secret
//! node ← volume attachment, resource slice, pod certificate request
//! ```
//!
//! It is kept in step with pods, volumes and the others; a question is a look into one or two tables.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use api::{Value, meta};
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};

use super::references;

/// What may lead to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ServiceAccount,
    ResourceClaim,
    Pod,
    Attachment,
    Slice,
    CertificateRequest,
}

/// An object that may lead to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    kind: Kind,
    /// Namespace and name.
    path: Box<str>,
}

impl Object {
    /// The namespace is empty where there is none.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, path: format!("{namespace}/{name}").into() }
    }
}

/// Who leads where.
#[derive(Default)]
pub struct Graph {
    /// What each pod, attachment, slice and certificate request leads to its node: itself and what it refers to.
    roots: HashMap<Object, Root>,
    /// From each of those to the nodes, and how many roots say so.
    nodes: HashMap<Object, HashMap<Arc<str>, usize>>,
    volumes: HashMap<Object, Volume>,
    /// The volumes that name a secret.
    by_secret: HashMap<Object, HashSet<Object>>,
}

struct Root {
    node: Arc<str>,
    objects: Vec<Object>,
}

struct Volume {
    claim: Object,
    secrets: Vec<Object>,
}

impl Graph {
    /// Whether an object is for a node.
    pub fn leads(&self, object: &Object, node: &str) -> bool {
        let direct = |object: &Object| self.nodes.get(object).is_some_and(|nodes| nodes.contains_key(node));
        let through = |volume: &Object| self.volumes.get(volume).is_some_and(|volume| direct(&volume.claim));
        match object.kind {
            Kind::Volume => through(object),
            Kind::Secret => {
                direct(object) || self.by_secret.get(object).is_some_and(|volumes| volumes.iter().any(through))
            }
            _ => direct(object),
        }
    }

    fn add_root(&mut self, root: Object, node: &str, mut objects: Vec<Object>) {
        self.remove_root(&root);
        if node.is_empty() {
            return;
        }
        objects.push(root.clone());
        let node: Arc<str> = node.into();
        for object in &objects {
            *self.nodes.entry(object.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.roots.insert(root, Root { node, objects });
    }

    fn remove_root(&mut self, root: &Object) {
        let Some(Root { node, objects }) = self.roots.remove(root) else { return };
        for object in objects {
            let Some(nodes) = self.nodes.get_mut(&object) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.nodes.remove(&object);
            }
        }
    }

    fn add_volume(&mut self, volume: Object, object: &Value) {
        self.remove_volume(&volume);
        let Some((claim, secrets)) = references::of_volume(object) else { return };
        for secret in &secrets {
            self.by_secret.entry(secret.clone()).or_default().insert(volume.clone());
        }
        self.volumes.insert(volume, Volume { claim, secrets });
    }

    fn remove_volume(&mut self, volume: &Object) {
        let Some(Volume { secrets, .. }) = self.volumes.remove(volume) else { return };
        for secret in secrets {
            let Some(volumes) = self.by_secret.get_mut(&secret) else { continue };
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_secret.remove(&secret);
            }
        }
    }
}

/// What the graph calls an object that it follows.
fn known(place: ObjectKey<'_>) -> Object {
    let kind = match place.resource.name {
        "pods" => Kind::Pod,
        "persistentvolumes" => Kind::Volume,
        "volumeattachments" => Kind::Attachment,
        "resourceslices" => Kind::Slice,
        _ => Kind::CertificateRequest,
    };
    Object::new(kind, place.namespace, place.name)
}

impl Indexer for Graph {
    fn insert_object(&mut self, place: ObjectKey<'_>, object: &Value) {
        let node = meta::string_at(object, &["spec", "nodeName"]);
        let known = known(place);
        match known.kind {
            Kind::Pod if node.is_empty() => self.remove_root(&known),
            Kind::Pod => self.add_root(known, node, references::of_pod(object)),
            Kind::Volume => self.add_volume(known, object),
            _ => self.add_root(known, node, Vec::new()),
        }
    }

    fn remove_object(&mut self, place: ObjectKey<'_>) {
        match known(place) {
            volume @ Object { kind: Kind::Volume, .. } => self.remove_volume(&volume),
            root => self.remove_root(&root),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
