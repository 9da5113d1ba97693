//! NodeDeclaredFeatureValidator: rejects pod updates that require features which the pod's node does not declare.

use api::{Value, meta, status::Status};
use async_trait::async_trait;

use crate::{AdmissionAttributes, Operation, Plugin, PluginDescriptor, ResourceRule};

pub const DESCRIPTOR: PluginDescriptor = PluginDescriptor {
    name: "NodeDeclaredFeatureValidator",
    enabled_by_default: true,
    rules: &[ResourceRule { resource: ("", "pods"), subresources: &["", "resize"], operations: &[Operation::Update] }],
    construct: |_| Ok(Box::new(NodeDeclaredFeatureValidator)),
};

/// Whether an update from the old to the new pod requires a feature.
type FeatureRequirement = fn(&Value, &Value) -> bool;

/// Node features with the check whether an update requires them, ordered by name.
const FEATURE_REQUIREMENTS: &[(&str, FeatureRequirement)] = &[
    ("InPlacePodLevelResourcesVerticalScaling", resizes_pod_level_resources),
    ("InPlacePodVerticalScalingInitContainers", resizes_init_containers),
];

struct NodeDeclaredFeatureValidator;

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    async fn validate(&self, attributes: &AdmissionAttributes<'_>, pod: &Value) -> Result<(), Status> {
        let (name, Some(old)) = (meta::string_at(pod, &["spec", "nodeName"]), attributes.old) else { return Ok(()) };
        let generation = |pod: &Value| meta::integer_at(pod, &["metadata", "generation"]);
        if name.is_empty() || generation(old) == generation(pod) {
            return Ok(());
        }
        let needed = required_features(old, pod);
        if needed.is_empty() {
            return Ok(());
        }
        let Some(node) = attributes.get_object(("", "v1", "nodes"), "", name).await? else {
            return Err(attributes.new_forbidden(pod, format!("node {name:?} not found")));
        };
        let declared = meta::list_at(&node, &["status", "declaredFeatures"]);
        let missing: Vec<&str> =
            needed.into_iter().filter(|feature| !declared.iter().any(|known| known == feature)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let why = format!("pod update requires features {missing} which are not available on node {name:?}");
        Err(attributes.new_forbidden(pod, why))
    }
}

fn required_features(old: &Value, new: &Value) -> Vec<&'static str> {
    FEATURE_REQUIREMENTS.iter().filter(|(_, needs)| needs(old, new)).map(|(feature, _)| *feature).collect()
}

/// Whether the pod-level resources change.
fn resizes_pod_level_resources(old: &Value, new: &Value) -> bool {
    resources_field(&old["spec"]) != resources_field(&new["spec"])
}

/// Whether the resources of an init container that is not a sidecar change.
fn resizes_init_containers(old: &Value, new: &Value) -> bool {
    let ends = |container: &Value| meta::string_at(container, &["restartPolicy"]) != "Always";
    let pairs =
        meta::list_at(old, &["spec", "initContainers"]).iter().zip(meta::list_at(new, &["spec", "initContainers"]));
    pairs.into_iter().any(|(old, new)| ends(old) && resources_field(old) != resources_field(new))
}

fn resources_field(of: &Value) -> Option<&Value> {
    meta::value_at(of, &["resources"]).filter(|resources| resources.as_object().is_none_or(|map| !map.is_empty()))
}
