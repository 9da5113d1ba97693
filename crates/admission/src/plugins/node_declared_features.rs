//! NodeDeclaredFeatureValidator: rejects pod updates that require features which the pod's node does not declare.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

/// The descriptor of the plug-in.
pub const ROW: PluginDescriptor = PluginDescriptor {
    name: "NodeDeclaredFeatureValidator",
    on: true,
    about: &[ResourceRule { resource: ("", "pods"), subresources: &["", "resize"], operations: &[Operation::Update] }],
    make: |_| Ok(Box::new(NodeDeclaredFeatures)),
};

/// Whether an update from the old to the new pod requires a feature.
type Needs = fn(&Value, &Value) -> bool;

/// Node features with the check whether an update requires them, ordered by name.
const NEEDS: &[(&str, Needs)] = &[
    ("InPlacePodLevelResourcesVerticalScaling", resizes_whole),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_containers),
];

struct NodeDeclaredFeatures;

#[async_trait]
impl Plugin for NodeDeclaredFeatures {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let (name, Some(old)) = (meta::string_at(pod, &["spec", "nodeName"]), attributes.old) else { return Ok(()) };
        let generation = |pod: &Value| meta::integer_at(pod, &["metadata", "generation"]);
        if name.is_empty() || generation(old) == generation(pod) {
            return Ok(());
        }
        let needed = needed(old, pod);
        if needed.is_empty() {
            return Ok(());
        }
        let Some(node) = attributes.find(("", "v1", "nodes"), "", name).await? else {
            return Err(attributes.forbidden(pod, format!("node {name:?} not found")));
        };
        let declared = meta::list_at(&node, &["status", "declaredFeatures"]);
        let missing: Vec<&str> =
            needed.into_iter().filter(|feature| !declared.iter().any(|known| known == feature)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let why = format!("pod update requires features {missing} which are not available on node {name:?}");
        Err(attributes.forbidden(pod, why))
    }
}

fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    NEEDS.iter().filter(|(_, needs)| needs(old, new)).map(|(feature, _)| *feature).collect()
}

/// Whether the pod-level resources change.
fn resizes_whole(old: &Value, new: &Value) -> bool {
    resources(&old["spec"]) != resources(&new["spec"])
}

/// Whether the resources of an init container that is not a sidecar change.
fn resizes_init_containers(old: &Value, new: &Value) -> bool {
    let ends = |container: &Value| meta::string_at(container, &["restartPolicy"]) != "Always";
    let pairs =
        meta::list_at(old, &["spec", "initContainers"]).iter().zip(meta::list_at(new, &["spec", "initContainers"]));
    pairs.into_iter().any(|(old, new)| ends(old) && resources(old) != resources(new))
}

fn resources(of: &Value) -> Option<&Value> {
    meta::value_at(of, &["resources"]).filter(|resources| resources.as_object().is_none_or(|map| !map.is_empty()))
}
