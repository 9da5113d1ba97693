//! Matching of claims with volumes, nodes with volumes, and nodes with storage classes.

use std::collections::BTreeMap;

use api::quantity::Quantity;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm},
    storage::v1::CSIStorageCapacity,
};

use crate::{
    views::labels::{LabelSet, Selector},
    views::node_info::NodeView,
    views::node_selector::NodeSelector,
};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the storage class of a claim; empty if it has none.
pub fn claim_class(claim: &PersistentVolumeClaim) -> String {
    let spec = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation(claim.metadata.annotations.as_ref(), CLASS_ANNOTATION).or(spec).cloned().unwrap_or_default()
}

/// Returns the storage class of a volume; empty if it has none.
pub fn volume_class(volume: &PersistentVolume) -> String {
    let spec = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    annotation(volume.metadata.annotations.as_ref(), CLASS_ANNOTATION).or(spec).cloned().unwrap_or_default()
}

/// Returns an annotation.
pub fn annotation<'a>(annotations: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a String> {
    annotations?.get(key)
}

/// Returns the storage that a claim requests.
pub fn requested_storage(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    Quantity::parse(&resources.requests.as_ref()?.get("storage")?.0)
}

/// Whether a volume can be used on a node.
pub fn is_volume_reachable(volume: &PersistentVolume, node: &NodeView) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| NodeSelector::from_selector(required).matches(&node.name, &node.labels))
}

/// Whether the volume's claim reference is for the claim.
pub fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = reference.uid.as_ref().filter(|uid| !uid.is_empty());
    reference.name == claim.metadata.name
        && reference.namespace == claim.metadata.namespace
        && uid.is_none_or(|uid| Some(uid) == claim.metadata.uid.as_ref())
}

/// Returns the smallest volume that a claim can have on a node, or the one that is reserved for it.
pub fn find_matching_volume<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    node: &NodeView,
    is_excluded: impl Fn(&str) -> bool,
) -> Option<&'a PersistentVolume> {
    let requested = requested_storage(claim).unwrap_or(Quantity::ZERO);
    let class = claim_class(claim);
    let claim_spec = claim.spec.clone().unwrap_or_default();
    let selector = claim_spec.selector.as_ref().map(|selector| Selector::from_label_selector(Some(selector)));
    let mut smallest: Option<(Quantity, &PersistentVolume)> = None;
    for volume in volumes {
        let spec = volume.spec.clone().unwrap_or_default();
        let capacity = spec.capacity.as_ref().and_then(|capacity| Quantity::parse(&capacity.get("storage")?.0));
        let capacity = capacity.unwrap_or(Quantity::ZERO);
        let mode = |mode: &Option<String>| mode.as_deref().unwrap_or("Filesystem").to_owned();
        let is_other = is_excluded(volume.metadata.name.as_deref().unwrap_or(""))
            || spec.claim_ref.is_some() && !is_bound_to(volume, claim)
            || capacity < requested
            || mode(&claim_spec.volume_mode) != mode(&spec.volume_mode)
            || claim_spec.volume_attributes_class_name.as_deref().unwrap_or("")
                != spec.volume_attributes_class_name.as_deref().unwrap_or("")
            || volume.metadata.deletion_timestamp.is_some();
        if is_other {
            continue;
        }
        let is_reachable = is_volume_reachable(volume, node);
        if is_bound_to(volume, claim) {
            return is_reachable.then_some(volume);
        }
        let is_available = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Available");
        let labels = || LabelSet::from_map(volume.metadata.labels.as_ref());
        let has_modes = claim_spec
            .access_modes
            .iter()
            .flatten()
            .all(|mode| spec.access_modes.iter().flatten().any(|offered| offered == mode));
        let fits = is_available
            && selector.as_ref().is_none_or(|selector| selector.matches(&labels()))
            && volume_class(volume) == class
            && is_reachable
            && has_modes;
        if fits && smallest.is_none_or(|(least, _)| capacity < least) {
            smallest = Some((capacity, volume));
        }
    }
    smallest.map(|(_, volume)| volume)
}

/// Whether a node is in one of the topologies of a storage class.
pub fn is_topology_allowed(terms: Option<&Vec<TopologySelectorTerm>>, labels: &LabelSet) -> bool {
    let Some(terms) = terms.filter(|terms| !terms.is_empty()) else { return true };
    terms.iter().any(|term| {
        let expressions = term.match_label_expressions.as_deref().unwrap_or(&[]);
        let holds = |expression: &k8s_openapi::api::core::v1::TopologySelectorLabelRequirement| {
            let value = labels.get(&expression.key);
            value.is_some_and(|value| expression.values.iter().any(|allowed| **allowed == **value))
        };
        !expressions.is_empty() && expressions.iter().all(holds)
    })
}

/// Returns the size of the greatest volume that a capacity can hold.
pub fn volume_limit(capacity: &CSIStorageCapacity) -> Option<Quantity> {
    let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())?;
    Quantity::parse(&limit.0)
}

/// Whether nodes with these labels have access to a capacity.
pub fn has_access(capacity: &CSIStorageCapacity, labels: &LabelSet) -> bool {
    capacity.node_topology.is_some() && Selector::from_label_selector(capacity.node_topology.as_ref()).matches(labels)
}
