//! The vertices of the node graph.

/// The kinds of vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VertexKind {
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

/// A vertex of the graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vertex {
    pub kind: VertexKind,
    /// Namespace and name.
    path: Box<str>,
}

impl Vertex {
    /// The namespace is empty for cluster-scoped objects.
    pub fn new(kind: VertexKind, namespace: &str, name: &str) -> Self {
        Self { kind, path: format!("{namespace}/{name}").into() }
    }
}
