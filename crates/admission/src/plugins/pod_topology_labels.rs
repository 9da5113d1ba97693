//! PodTopologyLabels: copies the zone and region labels of a node to pods that are bound to it.

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "PodTopologyLabels",
    enabled_by_default: true,
    rules: &[ResourceRule { resource: ("", "pods"), subresources: &["", "binding"], operations: &[Operation::Create] }],
    construct: |_| Ok(Box::new(PodTopologyLabels)),
};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

struct PodTopologyLabels;

#[async_trait]
impl Plugin for PodTopologyLabels {
    async fn admit(&self, attributes: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let node = match attributes.subresource() {
            "" => meta::string_at(object, &["spec", "nodeName"]),
            _ if meta::string_at(object, &["target", "kind"]) == "Node" => meta::string_at(object, &["target", "name"]),
            _ => "",
        };
        if node.is_empty() {
            return Ok(());
        }
        let Some(node) = attributes.get_object(("", "v1", "nodes"), "", node).await? else { return Ok(()) };
        for label in LABELS {
            if let Some(value) = meta::value_at(&node, &["metadata", "labels", label]) {
                let labels = meta::metadata_mut(object).entry("labels").or_insert_with(|| json!({}));
                meta::object_mut(labels).insert(label.into(), value.clone());
            }
        }
        Ok(())
    }
}
