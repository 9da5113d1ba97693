//! The Node authorizer: allows kubelets the objects of the pods on their node.
//!
//! Requests that only the content of an object distinguishes (its own node, the status of its own pods) are allowed for
//! all objects here; the admission plug-in NodeRestriction checks the content.

mod graph;
mod references;
#[cfg(test)]
mod tests;
mod vertex;

use std::sync::Arc;

use api::schema::schema;
use apiserver_core::{
    User,
    attributes::{Attributes, AttributesTarget, ResourceAttributes},
    cache_index::CacheIndex,
};
use async_trait::async_trait;
pub use references::POD_SECRETS;
use store::WatchCache;

use self::{
    graph::NodeGraph,
    vertex::{Vertex, VertexKind},
};
use super::{Authorizer, Decision, PolicyRule, Reason, ResolvedRules};
use crate::bootstrap_policy;

const NODE_USER_PREFIX: &str = "system:node:";
const NODES_GROUP: &str = "system:nodes";
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The resources that the graph is built from.
const GRAPH_RESOURCES: [(&str, &str, &str); 5] = [
    ("", "v1", "pods"),
    ("", "v1", "persistentvolumes"),
    ("storage.k8s.io", "v1", "volumeattachments"),
    ("resource.k8s.io", "v1", "resourceslices"),
    ("certificates.k8s.io", "v1beta1", "podcertificaterequests"),
];

/// Authorizes kubelets.
pub struct NodeAuthorizer {
    graph: CacheIndex<NodeGraph>,
    /// The rules of all nodes.
    rules: Vec<PolicyRule>,
}

/// `Err` holds the reason why a request is not allowed.
type NodeDecision = Result<(), Reason>;

impl NodeAuthorizer {
    /// Builds the graph over the watch cache.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let followed =
            GRAPH_RESOURCES.iter().filter_map(|(group, version, name)| schema().resource(group, version, name));
        let followed: Vec<_> = followed.collect();
        let rules = bootstrap_policy::cluster_role_rules("system:node").iter().map(PolicyRule::from_object).collect();
        Ok(Self { graph: CacheIndex::new(cache, &followed, NodeGraph::default())?, rules })
    }

    fn decide_request(&self, node: &str, attributes: &Attributes<'_>) -> NodeDecision {
        let AttributesTarget::Resource(asked) = &attributes.target else { return self.apply_rules(attributes) };
        let request = NodeRequest { graph: &self.graph, node, verb: attributes.verb, asked };
        match (asked.group, asked.resource) {
            ("", "secrets") => request.authorize_read(VertexKind::Secret),
            ("", "configmaps") => request.authorize_read(VertexKind::ConfigMap),
            ("", "persistentvolumeclaims") if asked.subresource == "status" => {
                request.authorize_status_write(VertexKind::Claim)
            }
            ("", "persistentvolumeclaims") => request.authorize_get(VertexKind::Claim),
            ("", "persistentvolumes") => request.authorize_get(VertexKind::Volume),
            ("resource.k8s.io", "resourceclaims") => request.authorize_get(VertexKind::ResourceClaim),
            ("storage.k8s.io", "volumeattachments") => request.authorize_get(VertexKind::Attachment),
            ("", "serviceaccounts") => request.authorize_service_account(),
            ("coordination.k8s.io", "leases") => request.authorize_lease(),
            ("storage.k8s.io", "csinodes") => request.authorize_csi_node(),
            ("resource.k8s.io", "resourceslices") => request.authorize_resource_slice(),
            ("", "nodes") => request.authorize_node(),
            ("", "pods") => request.authorize_pod(),
            ("certificates.k8s.io", "podcertificaterequests") => request.authorize_certificate_request(),
            _ => self.apply_rules(attributes),
        }
    }

    fn apply_rules(&self, attributes: &Attributes<'_>) -> NodeDecision {
        if self.rules.iter().any(|rule| rule.allows_request(attributes)) { Ok(()) } else { Err(Reason::none()) }
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let answer = match node_name(attributes.user) {
            None => Err(Reason::none()),
            Some("") => Err(format!("unknown node for user {:?}", attributes.user.name).into()),
            Some(node) => self.decide_request(node, attributes),
        };
        answer.map_or_else(Decision::NoOpinion, |()| Decision::Allowed(Reason::none()))
    }

    fn rules_for(&self, user: &User, _: &str) -> ResolvedRules {
        let is_node = node_name(user).is_some();
        let errors = is_node.then(|| "node authorizer does not support user rule resolution".to_owned());
        ResolvedRules { rules: Vec::new(), incomplete: is_node, errors: errors.into_iter().collect() }
    }
}

/// Shared, so that a replaced configuration keeps the graph.
#[async_trait]
impl Authorizer for Arc<NodeAuthorizer> {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        NodeAuthorizer::authorize(self, attributes).await
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        NodeAuthorizer::rules_for(self, user, namespace)
    }
}

/// Returns the node name of a user, "" if it is empty; `None` if the user is not a node.
pub fn node_name(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(NODE_USER_PREFIX)?;
    user.groups.iter().any(|group| group == NODES_GROUP).then_some(node)
}

/// A request of a node.
struct NodeRequest<'a> {
    graph: &'a CacheIndex<NodeGraph>,
    node: &'a str,
    verb: &'a str,
    asked: &'a ResourceAttributes<'a>,
}

impl NodeRequest<'_> {
    /// Requires a path in the graph from the named object to the node.
    fn require_related(&self, kind: VertexKind) -> NodeDecision {
        if self.asked.name.is_empty() {
            return Err("No Object name found".into());
        }
        self.leads_to(kind)
    }

    fn leads_to(&self, kind: VertexKind) -> NodeDecision {
        let object = Vertex::new(kind, self.asked.namespace, self.asked.name);
        if self.graph.read(|graph| graph.leads_to(&object, self.node)) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{}' and this object", self.node).into())
    }

    fn authorize_get(&self, kind: VertexKind) -> NodeDecision {
        match (self.verb, self.asked.subresource) {
            ("get", "") => self.require_related(kind),
            ("get", _) => Err("cannot get subresource".into()),
            _ => Err("can only get individual resources of this type".into()),
        }
    }

    fn authorize_read(&self, kind: VertexKind) -> NodeDecision {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !self.asked.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if self.asked.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.require_related(kind)
    }

    fn authorize_status_write(&self, kind: VertexKind) -> NodeDecision {
        match self.verb {
            "update" | "patch" => self.require_related(kind),
            _ => Err("can only get/update/patch this type".into()),
        }
    }

    fn authorize_service_account(&self) -> NodeDecision {
        match (self.verb, self.asked.subresource) {
            ("get", "") => self.authorize_read(VertexKind::ServiceAccount),
            ("create", _) if self.asked.name.is_empty() => {
                Err("can only create tokens for individual service accounts".into())
            }
            ("create", "token") => self.leads_to(VertexKind::ServiceAccount),
            ("create", _) => Err("can only create token subresource of serviceaccount".into()),
            _ => Err("can only create tokens for individual service accounts".into()),
        }
    }

    fn authorize_lease(&self) -> NodeDecision {
        if !self.is_own_verb() {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if self.asked.namespace != LEASE_NAMESPACE {
            return Err("can only access leases in the \"kube-node-lease\" system namespace".into());
        }
        self.require_node_name("can only access node lease with the same name as the requesting node")
    }

    fn authorize_csi_node(&self) -> NodeDecision {
        if !self.is_own_verb() {
            return Err("can only get, create, update, patch, or delete a CSINode".into());
        }
        if !self.asked.subresource.is_empty() {
            return Err("cannot authorize CSINode subresources".into());
        }
        self.require_node_name("can only access CSINode with the same name as the requesting node")
    }

    /// Whether the verb is allowed on objects with the node's name.
    fn is_own_verb(&self) -> bool {
        matches!(self.verb, "get" | "create" | "update" | "patch" | "delete")
    }

    /// Requires the node's name; the name of a created object is not known here.
    fn require_node_name(&self, otherwise: &'static str) -> NodeDecision {
        if self.verb == "create" || self.asked.name == self.node { Ok(()) } else { Err(otherwise.into()) }
    }

    fn authorize_resource_slice(&self) -> NodeDecision {
        if !self.asked.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.require_related(VertexKind::Slice),
            "watch" | "list" | "deletecollection" => self.require_node_selector(
                "can only list/watch/deletecollection resourceslices with nodeName field selector",
            ),
            _ => Err(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                      delete, deletecollection"
                    .into(),
            ),
        }
    }

    fn authorize_certificate_request(&self) -> NodeDecision {
        if !self.asked.subresource.is_empty() {
            return Err("nodes may not access the status subresource of PodCertificateRequests".into());
        }
        match self.verb {
            "create" => Ok(()),
            "get" => self.require_related(VertexKind::CertificateRequest),
            "list" | "watch" => {
                self.require_node_selector("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Err(format!("nodes may not {verb} podcertificaterequests").into()),
        }
    }

    /// Requires a field selector on the node.
    fn require_node_selector(&self, otherwise: &'static str) -> NodeDecision {
        if self.asked.selectors.requires_field("spec.nodeName", self.node) { Ok(()) } else { Err(otherwise.into()) }
    }

    fn authorize_node(&self) -> NodeDecision {
        let (node, name) = (self.node, self.asked.name);
        match (self.asked.subresource, self.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
            ("", "get" | "list" | "watch") if name == node => Ok(()),
            ("", "get" | "list" | "watch") if name.is_empty() => {
                Err(format!("node '{node}' cannot read all nodes, only its own Node object").into())
            }
            ("", "get" | "list" | "watch") => {
                Err(format!("node '{node}' cannot read '{name}', only its own Node object").into())
            }
            _ => Err(Reason::none()),
        }
    }

    fn authorize_pod(&self) -> NodeDecision {
        match (self.asked.subresource, self.verb) {
            ("", "get") => self.authorize_get(VertexKind::Pod),
            ("", "list" | "watch") => {
                match self.require_node_selector("can only list/watch pods with spec.nodeName field selector") {
                    Err(_) if !self.asked.name.is_empty() => self.require_related(VertexKind::Pod),
                    answer => answer,
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(Reason::none()),
        }
    }
}
