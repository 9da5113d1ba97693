//! ExtendedResourceToleration: adds tolerations for the extended resources that a pod requests.

use std::collections::BTreeSet;

use api::{Value, meta, status::Status};
use async_trait::async_trait;
use serde_json::json;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule, pod};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "ExtendedResourceToleration",
    enabled_by_default: false,
    rules: &[ResourceRule::for_object("", "pods", Operation::WRITES)],
    construct: |_| Ok(Box::new(ExtendedResourceToleration)),
};

struct ExtendedResourceToleration;

#[async_trait]
impl Plugin for ExtendedResourceToleration {
    async fn admit(&self, _: &AdmissionAttributes<'_>, object: &mut Value) -> Result<(), Status> {
        let containers =
            ["containers", "initContainers"].into_iter().flat_map(|list| meta::list_at(object, &["spec", list]));
        let requests =
            containers.filter_map(|container| meta::value_at(container, &["resources", "requests"])?.as_object());
        let extended = |name: &&String| name.contains('/') && !name.contains("kubernetes.io/");
        let names: BTreeSet<String> = requests.flat_map(|list| list.keys()).filter(extended).cloned().collect();
        for name in names {
            let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            let list = meta::field_mut(object, "spec").entry("tolerations").or_insert_with(|| json!([]));
            let Some(list) = list.as_array_mut() else { continue };
            if !list.iter().any(|known| pod::toleration_includes(known, &toleration)) {
                list.push(toleration);
            }
        }
        Ok(())
    }
}
