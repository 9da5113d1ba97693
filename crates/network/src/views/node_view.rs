//! The fields of a Node that the network reads.

use std::net::IpAddr;

use k8s_openapi::{ClusterResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::{Deserialize, Deserializer};

use super::impl_view_resource;

/// The label with a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// The taint of nodes that are about to be deleted.
const TO_BE_DELETED_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// The prefix of annotations that the overlay writes.
const ANNOTATION_PREFIX: &str = "network.ferry.dev/";

/// A Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct NodeView {
    #[serde(deserialize_with = "node_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpecView,
    #[serde(default)]
    pub status: NodeStatusView,
}

impl_view_resource!(NodeView, "Node", "", "v1", "nodes", ClusterResourceScope);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpecView {
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
    pub taints: Vec<TaintView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TaintView {
    pub key: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatusView {
    pub addresses: Vec<NodeAddressView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeAddressView {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

impl NodeView {
    /// The zone; empty if the node has none.
    pub fn zone(&self) -> &str {
        self.metadata.labels.as_ref().and_then(|labels| labels.get(ZONE_LABEL)).map_or("", String::as_str)
    }

    /// Whether load balancers may send traffic to the node.
    pub fn is_eligible(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !self.spec.taints.iter().any(|taint| taint.key == TO_BE_DELETED_TAINT)
    }

    /// The internal addresses.
    pub fn internal_addresses(&self) -> Vec<IpAddr> {
        let internal = self.status.addresses.iter().filter(|address| address.kind == "InternalIP");
        internal.filter_map(|address| address.address.parse().ok()).collect()
    }
}

/// Reads metadata with the overlay's annotations only.
fn node_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut full = ObjectMeta::deserialize(deserializer)?;
    if let Some(annotations) = &mut full.annotations {
        annotations.retain(|name, _| name.starts_with(ANNOTATION_PREFIX));
    }
    full.managed_fields = None;
    Ok(full)
}
