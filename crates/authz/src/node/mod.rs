//! The Node authorizer: what kubelets need for the pods of their nodes, and nothing of other nodes.
//!
//! What a node may do to objects of its own that only their content tells apart (its own node, the status of its own pods),
//! it may do here to all; the admission plug-in NodeRestriction looks at the content.

mod graph;
mod references;
#[cfg(test)]
mod tests;

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

use self::graph::{Graph, Kind, Object};
use super::{Authorizer, Decision, Reason, ResolvedRules, Rule};
use crate::bootstrap_policy;

const PREFIX: &str = "system:node:";
const NODES: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";
/// What the graph is made of.
const FOLLOWED: [(&str, &str, &str); 5] = [
    ("", "v1", "pods"),
    ("", "v1", "persistentvolumes"),
    ("storage.k8s.io", "v1", "volumeattachments"),
    ("resource.k8s.io", "v1", "resourceslices"),
    ("certificates.k8s.io", "v1beta1", "podcertificaterequests"),
];

/// The authorizer of kubelets.
pub struct Node {
    graph: CacheIndex<Graph>,
    /// What all nodes may do.
    rules: Vec<Rule>,
}

/// Why not; `Ok`: it is allowed.
type Answer = Result<(), Reason>;

impl Node {
    /// Over the objects in a cache.
    pub fn new(cache: &Arc<WatchCache>) -> Result<Self, store::StoreError> {
        let followed = FOLLOWED.iter().filter_map(|(group, version, name)| schema().resource(group, version, name));
        let followed: Vec<_> = followed.collect();
        let rules = bootstrap_policy::rules_of("system:node").iter().map(Rule::of).collect();
        Ok(Self { graph: CacheIndex::new(cache, &followed, Graph::default())?, rules })
    }

    fn answer(&self, node: &str, attributes: &Attributes<'_>) -> Answer {
        let AttributesTarget::Resource(asked) = &attributes.target else { return self.like_all(attributes) };
        let request = Request { graph: &self.graph, node, verb: attributes.verb, asked };
        match (asked.group, asked.resource) {
            ("", "secrets") => request.read(Kind::Secret),
            ("", "configmaps") => request.read(Kind::ConfigMap),
            ("", "persistentvolumeclaims") if asked.subresource == "status" => request.write_status(Kind::Claim),
            ("", "persistentvolumeclaims") => request.get(Kind::Claim),
            ("", "persistentvolumes") => request.get(Kind::Volume),
            ("resource.k8s.io", "resourceclaims") => request.get(Kind::ResourceClaim),
            ("storage.k8s.io", "volumeattachments") => request.get(Kind::Attachment),
            ("", "serviceaccounts") => request.service_account(),
            ("coordination.k8s.io", "leases") => request.lease(),
            ("storage.k8s.io", "csinodes") => request.csi_node(),
            ("resource.k8s.io", "resourceslices") => request.slice(),
            ("", "nodes") => request.node(),
            ("", "pods") => request.pod(),
            ("certificates.k8s.io", "podcertificaterequests") => request.certificate_request(),
            _ => self.like_all(attributes),
        }
    }

    fn like_all(&self, attributes: &Attributes<'_>) -> Answer {
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { Err(Reason::none()) }
    }
}

#[async_trait]
impl Authorizer for Node {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let answer = match identity(attributes.user) {
            None => Err(Reason::none()),
            Some("") => Err(format!("unknown node for user {:?}", attributes.user.name).into()),
            Some(node) => self.answer(node, attributes),
        };
        answer.map_or_else(Decision::NoOpinion, |()| Decision::Allowed(Reason::none()))
    }

    fn rules_for(&self, user: &User, _: &str) -> ResolvedRules {
        let is_node = identity(user).is_some();
        let errors = is_node.then(|| "node authorizer does not support user rule resolution".to_owned());
        ResolvedRules { rules: Vec::new(), incomplete: is_node, errors: errors.into_iter().collect() }
    }
}

/// One graph may be in several chains, one after the other.
#[async_trait]
impl Authorizer for Arc<Node> {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        Node::authorize(self, attributes).await
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        Node::rules_for(self, user, namespace)
    }
}

/// The node that a user is, "" if it does not say which; `None`: it is none.
pub fn identity(user: &User) -> Option<&str> {
    let node = user.name.strip_prefix(PREFIX)?;
    user.groups.iter().any(|group| group == NODES).then_some(node)
}

/// What one node asks for.
struct Request<'a> {
    graph: &'a CacheIndex<Graph>,
    node: &'a str,
    verb: &'a str,
    asked: &'a ResourceAttributes<'a>,
}

impl Request<'_> {
    /// The object must be one that something on the node refers to.
    fn related(&self, kind: Kind) -> Answer {
        if self.asked.name.is_empty() {
            return Err("No Object name found".into());
        }
        self.leads(kind)
    }

    fn leads(&self, kind: Kind) -> Answer {
        let object = Object::new(kind, self.asked.namespace, self.asked.name);
        if self.graph.read(|graph| graph.leads(&object, self.node)) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{}' and this object", self.node).into())
    }

    fn get(&self, kind: Kind) -> Answer {
        match (self.verb, self.asked.subresource) {
            ("get", "") => self.related(kind),
            ("get", _) => Err("cannot get subresource".into()),
            _ => Err("can only get individual resources of this type".into()),
        }
    }

    fn read(&self, kind: Kind) -> Answer {
        if !matches!(self.verb, "get" | "list" | "watch") {
            return Err("can only read resources of this type".into());
        }
        if !self.asked.subresource.is_empty() {
            return Err("cannot read subresource".into());
        }
        if self.asked.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.related(kind)
    }

    fn write_status(&self, kind: Kind) -> Answer {
        match self.verb {
            "update" | "patch" => self.related(kind),
            _ => Err("can only get/update/patch this type".into()),
        }
    }

    fn service_account(&self) -> Answer {
        match (self.verb, self.asked.subresource) {
            ("get", "") => self.read(Kind::ServiceAccount),
            ("create", _) if self.asked.name.is_empty() => {
                Err("can only create tokens for individual service accounts".into())
            }
            ("create", "token") => self.leads(Kind::ServiceAccount),
            ("create", _) => Err("can only create token subresource of serviceaccount".into()),
            _ => Err("can only create tokens for individual service accounts".into()),
        }
    }

    fn lease(&self) -> Answer {
        if !self.is_own_verb() {
            return Err("can only get, create, update, patch, or delete a node lease".into());
        }
        if self.asked.namespace != LEASES {
            return Err("can only access leases in the \"kube-node-lease\" system namespace".into());
        }
        self.named_like_the_node("can only access node lease with the same name as the requesting node")
    }

    fn csi_node(&self) -> Answer {
        if !self.is_own_verb() {
            return Err("can only get, create, update, patch, or delete a CSINode".into());
        }
        if !self.asked.subresource.is_empty() {
            return Err("cannot authorize CSINode subresources".into());
        }
        self.named_like_the_node("can only access CSINode with the same name as the requesting node")
    }

    /// What may be done to objects of the node's own name.
    fn is_own_verb(&self) -> bool {
        matches!(self.verb, "get" | "create" | "update" | "patch" | "delete")
    }

    /// The name of an object that is created is not known here.
    fn named_like_the_node(&self, otherwise: &'static str) -> Answer {
        if self.verb == "create" || self.asked.name == self.node { Ok(()) } else { Err(otherwise.into()) }
    }

    fn slice(&self) -> Answer {
        if !self.asked.subresource.is_empty() {
            return Err("cannot authorize ResourceSlice subresources".into());
        }
        match self.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(Kind::Slice),
            "watch" | "list" | "deletecollection" => {
                self.selects("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => Err(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                      delete, deletecollection"
                    .into(),
            ),
        }
    }

    fn certificate_request(&self) -> Answer {
        if !self.asked.subresource.is_empty() {
            return Err("nodes may not access the status subresource of PodCertificateRequests".into());
        }
        match self.verb {
            "create" => Ok(()),
            "get" => self.related(Kind::CertificateRequest),
            "list" | "watch" => self.selects("can only list/watch podcertificaterequests with nodeName field selector"),
            verb => Err(format!("nodes may not {verb} podcertificaterequests").into()),
        }
    }

    /// The field selector must limit it to the node.
    fn selects(&self, otherwise: &'static str) -> Answer {
        if self.asked.selectors.requires_field("spec.nodeName", self.node) { Ok(()) } else { Err(otherwise.into()) }
    }

    fn node(&self) -> Answer {
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

    fn pod(&self) -> Answer {
        match (self.asked.subresource, self.verb) {
            ("", "get") => self.get(Kind::Pod),
            ("", "list" | "watch") => {
                match self.selects("can only list/watch pods with spec.nodeName field selector") {
                    Err(_) if !self.asked.name.is_empty() => self.related(Kind::Pod),
                    answer => answer,
                }
            }
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(Reason::none()),
        }
    }
}
