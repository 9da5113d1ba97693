//! The node graph: the nodes that an object is for, through pods, claims and volumes.
//!
//! ```text
//! node ← pod ← secret, config map, service account, resource claim, claim ← volume ← secret
//! node ← volume attachment, resource slice, pod certificate request
//! ```
//!
//! An index over the watch cache; a query reads one or two tables.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use api::{Value, meta};
use apiserver_core::{cache_index::Indexer, loopback::ObjectKey};

use super::{
    references,
    vertex::{Vertex, VertexKind},
};

/// The graph.
#[derive(Default)]
pub struct NodeGraph {
    /// The node and references of each pod, attachment, slice and certificate request.
    roots: HashMap<Vertex, GraphRoot>,
    /// The nodes of each object, with the number of roots.
    nodes: HashMap<Vertex, HashMap<Arc<str>, usize>>,
    volumes: HashMap<Vertex, VolumeEdges>,
    /// The volumes that refer to a Secret.
    by_secret: HashMap<Vertex, HashSet<Vertex>>,
}

struct GraphRoot {
    node: Arc<str>,
    objects: Vec<Vertex>,
}

struct VolumeEdges {
    claim: Vertex,
    secrets: Vec<Vertex>,
}

impl NodeGraph {
    /// Whether an object leads to a node.
    pub fn leads_to(&self, object: &Vertex, node: &str) -> bool {
        let direct = |object: &Vertex| self.nodes.get(object).is_some_and(|nodes| nodes.contains_key(node));
        let through = |volume: &Vertex| self.volumes.get(volume).is_some_and(|volume| direct(&volume.claim));
        match object.kind {
            VertexKind::Volume => through(object),
            VertexKind::Secret => {
                direct(object) || self.by_secret.get(object).is_some_and(|volumes| volumes.iter().any(through))
            }
            _ => direct(object),
        }
    }

    fn add_root(&mut self, root: Vertex, node: &str, mut objects: Vec<Vertex>) {
        self.remove_root(&root);
        if node.is_empty() {
            return;
        }
        objects.push(root.clone());
        let node: Arc<str> = node.into();
        for object in &objects {
            *self.nodes.entry(object.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.roots.insert(root, GraphRoot { node, objects });
    }

    fn remove_root(&mut self, root: &Vertex) {
        let Some(GraphRoot { node, objects }) = self.roots.remove(root) else { return };
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

    fn add_volume(&mut self, volume: Vertex, object: &Value) {
        self.remove_volume(&volume);
        let Some((claim, secrets)) = references::volume_references(object) else { return };
        for secret in &secrets {
            self.by_secret.entry(secret.clone()).or_default().insert(volume.clone());
        }
        self.volumes.insert(volume, VolumeEdges { claim, secrets });
    }

    fn remove_volume(&mut self, volume: &Vertex) {
        let Some(VolumeEdges { secrets, .. }) = self.volumes.remove(volume) else { return };
        for secret in secrets {
            let Some(volumes) = self.by_secret.get_mut(&secret) else { continue };
            volumes.remove(volume);
            if volumes.is_empty() {
                self.by_secret.remove(&secret);
            }
        }
    }
}

/// Returns the vertex of a followed object.
fn vertex_of(key: ObjectKey<'_>) -> Vertex {
    let kind = match key.resource.name {
        "pods" => VertexKind::Pod,
        "persistentvolumes" => VertexKind::Volume,
        "volumeattachments" => VertexKind::Attachment,
        "resourceslices" => VertexKind::Slice,
        _ => VertexKind::CertificateRequest,
    };
    Vertex::new(kind, key.namespace, key.name)
}

impl Indexer for NodeGraph {
    fn insert_object(&mut self, key: ObjectKey<'_>, object: &Value) {
        let node = meta::string_at(object, &["spec", "nodeName"]);
        let known = vertex_of(key);
        match known.kind {
            VertexKind::Pod if node.is_empty() => self.remove_root(&known),
            VertexKind::Pod => self.add_root(known, node, references::pod_references(object)),
            VertexKind::Volume => self.add_volume(known, object),
            _ => self.add_root(known, node, Vec::new()),
        }
    }

    fn remove_object(&mut self, key: ObjectKey<'_>) {
        match vertex_of(key) {
            volume @ Vertex { kind: VertexKind::Volume, .. } => self.remove_volume(&volume),
            root => self.remove_root(&root),
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}
