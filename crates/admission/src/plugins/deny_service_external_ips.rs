//! DenyServiceExternalIPs: rejects services with new external IPs.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "DenyServiceExternalIPs",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "services", Operation::WRITES)],
    construct: |_| Ok(Box::new(DenyServiceExternalIps)),
};

struct DenyServiceExternalIps;

#[async_trait]
impl Plugin for DenyServiceExternalIps {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, service: &Value) -> Result<(), Status> {
        let addresses = |service: &Value| meta::list_at(service, &["spec", "externalIPs"]).to_vec();
        let known = attributes.old.map(addresses).unwrap_or_default();
        if addresses(service).iter().all(|address| known.contains(address)) {
            return Ok(());
        }
        Err(attributes.new_forbidden(service, "Use of external IPs is denied by admission control"))
    }
}
