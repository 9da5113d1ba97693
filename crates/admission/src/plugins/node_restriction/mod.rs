//! NodeRestriction: limits a kubelet to its own node, its pods and their tokens, its lease and its other objects.

mod mirror_pods;
mod node_objects;
mod nodes;
mod pods;
mod service_account_tokens;

use std::sync::Arc;

use api::{Value, status::Status};
use async_trait::async_trait;
use authz::{Authorizers, node_name};

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "NodeRestriction",
    enabled_by_default: false,
    rules: &[ResourceRule::for_all_resources(&[Operation::Create, Operation::Update, Operation::Delete])],
    construct: |init| Ok(Box::new(NodeRestriction { authorizers: init.authorizers.clone() })),
};

struct NodeRestriction {
    authorizers: Arc<Authorizers>,
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        node_name(attributes.user()).is_some()
    }

    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(node) = node_name(attributes.user()) else { return Ok(()) };
        if node.is_empty() {
            let why = format!("could not determine node from user {:?}", attributes.user().name);
            return Err(attributes.new_forbidden(object, why));
        }
        let request = NodeRequest { attributes, object, node };
        let resource = attributes.resource();
        match (resource.group, resource.name) {
            ("", "pods") => pods::check_pod(&request).await,
            ("", "nodes") => nodes::check_node(&request),
            ("", "persistentvolumeclaims") => node_objects::check_claim(&request),
            ("", "serviceaccounts") => service_account_tokens::check_token_request(&request, &self.authorizers).await,
            ("certificates.k8s.io", "podcertificaterequests") => {
                node_objects::check_pod_certificate_request(&request).await
            }
            ("certificates.k8s.io", "certificatesigningrequests") => node_objects::check_signing_request(&request),
            ("coordination.k8s.io", "leases") => node_objects::check_lease(&request),
            ("storage.k8s.io", "csinodes") => node_objects::check_csi_node(&request),
            ("resource.k8s.io", "resourceslices") => node_objects::check_resource_slice(&request),
            _ => Ok(()),
        }
    }
}

/// A request of a kubelet.
struct NodeRequest<'a> {
    attributes: &'a AdmissionAttributes<'a>,
    object: &'a Value,
    node: &'a str,
}

impl NodeRequest<'_> {
    fn deny(&self, why: impl AsRef<str>) -> Result<(), Status> {
        Err(self.attributes.new_forbidden(self.object, why))
    }

    fn deny_operation(&self) -> Result<(), Status> {
        self.deny(format!("unexpected operation {:?}", self.attributes.operation.name()))
    }

    /// Reads a pod of the request's namespace; 404 if it does not exist.
    async fn get_pod(&self, name: &str) -> Result<Value, Status> {
        let pods = apiserver_core::loopback::find_resource("", "v1", "pods")?;
        Ok(self.attributes.registry.read_object(pods, self.attributes.namespace(), name).await?.0)
    }
}
