//! LimitPodHardAntiAffinityTopology: rejects required pod anti-affinity with a topology key other than the host name.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

const HOSTNAME: &str = "kubernetes.io/hostname";

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "LimitPodHardAntiAffinityTopology",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |_| Ok(Box::new(LimitPodHardAntiAffinityTopology)),
};

struct LimitPodHardAntiAffinityTopology;

#[async_trait]
impl Plugin for LimitPodHardAntiAffinityTopology {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let path = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        let keys = meta::list_at(object, &path).iter().map(|term| meta::string_at(term, &["topologyKey"]));
        match keys.into_iter().find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => Err(attributes.new_forbidden(
                object,
                format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                ),
            )),
        }
    }
}
