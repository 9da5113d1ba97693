//! NodeRestriction: limits a kubelet to its own node, its pods and their tokens, its lease and its other objects.

mod mirror_pods;
mod nodes;
mod others;
mod pods;
mod tokens;

use std::sync::Arc;

use api::{Value, status::Status};
use apiserver_core::User;
use async_trait::async_trait;
use authz::Authorizers;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "NodeRestriction",
    on: false,
    about: &[ResourceRule::everything(&[Operation::Create, Operation::Update, Operation::Delete])],
    make: |parts| Ok(Box::new(NodeRestriction { authorizers: parts.authorizers.clone() })),
};

const PREFIX: &str = "system:node:";
const GROUP: &str = "system:nodes";

struct NodeRestriction {
    authorizers: Arc<Authorizers>,
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        node_of(attributes.user()).is_some()
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(node) = node_of(attributes.user()) else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", attributes.user().name);
            return Err(attributes.forbidden(object, why));
        }
        let request = Request { attributes, object, node };
        let resource = attributes.resource();
        match (resource.group, resource.name) {
            ("", "pods") => pods::check(&request).await,
            ("", "nodes") => nodes::check(&request),
            ("", "persistentvolumeclaims") => others::claim(&request),
            ("", "serviceaccounts") => tokens::check(&request, &self.authorizers).await,
            ("certificates.k8s.io", "podcertificaterequests") => others::pod_certificate(&request).await,
            ("certificates.k8s.io", "certificatesigningrequests") => others::signing_request(&request),
            ("coordination.k8s.io", "leases") => others::lease(&request),
            ("storage.k8s.io", "csinodes") => others::csi_node(&request),
            ("resource.k8s.io", "resourceslices") => others::resource_slice(&request),
            _ => Ok(()),
        }
    }
}

/// The node name of a node user; empty if the user name carries none.
fn node_of(user: &User) -> Option<&str> {
    let name = user.name.strip_prefix(PREFIX)?;
    user.groups.iter().any(|group| group == GROUP).then_some(name)
}

/// A request of a kubelet.
struct Request<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    object: &'a Value,
    node: &'a str,
}

impl Request<'_> {
    fn refuse(&self, why: impl AsRef<str>) -> Result<(), Status> {
        Err(self.attributes.forbidden(self.object, why))
    }

    fn unexpected(&self) -> Result<(), Status> {
        self.refuse(format!("unexpected operation {:?}", self.attributes.operation.name()))
    }

    /// Reads a pod of the request's namespace; 404 if it does not exist.
    async fn pod(&self, name: &str) -> Result<Value, Status> {
        let pods = apiserver_core::loopback::find_resource("", "v1", "pods")?;
        Ok(self.attributes.registry.read_object(pods, self.attributes.namespace(), name).await?.0)
    }
}
