//! Matching of PersistentVolumes and claims: class, capacity, access modes, volume mode, selector, attributes class.

use std::{collections::BTreeMap, sync::Arc};

use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};

/// Annotation of claims: the initial binding is complete.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation of volumes and claims: the controller, not the user, made the binding.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation of claims: the node that the scheduler selected for the volume.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of volumes: the provisioner that created them.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of claims: the provisioner that is to create their volume.
pub(super) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The older name of [`STORAGE_PROVISIONER`].
pub(super) const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The older place of the class name.
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns the storage class of a claim; empty without one.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let spec_class = || claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    claim.annotations().get(BETA_STORAGE_CLASS).map(String::as_str).or_else(spec_class).unwrap_or("")
}

/// Whether the claim names a storage class, if only the empty one.
pub(super) fn has_class(claim: &PersistentVolumeClaim) -> bool {
    let spec_class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref());
    claim.annotations().contains_key(BETA_STORAGE_CLASS) || spec_class.is_some()
}

/// Returns the storage class of a volume; empty without one.
pub(super) fn volume_class(volume: &PersistentVolume) -> &str {
    let spec_class = || volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    volume.annotations().get(BETA_STORAGE_CLASS).map(String::as_str).or_else(spec_class).unwrap_or("")
}

/// Whether the volume is bound or reserved for the claim.
pub(super) fn is_bound_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(claim_ref) = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()) else { return false };
    let uid = claim_ref.uid.as_deref().unwrap_or("");
    claim_ref.name == claim.metadata.name
        && claim_ref.namespace == claim.metadata.namespace
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

/// Returns the capacity of a volume.
pub(super) fn volume_capacity(volume: &PersistentVolume) -> Option<Quantity> {
    Quantity::parse(&volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?.0)
}

/// Returns the storage that a claim requests.
pub(crate) fn requested_storage(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests.and_then(|requests| Quantity::parse(&requests.get("storage")?.0)).unwrap_or(Quantity::ZERO)
}

/// Whether both are file systems or both block devices.
pub(super) fn volume_modes_match(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let claim_mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    let volume_mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    claim_mode.unwrap_or("Filesystem") == volume_mode.unwrap_or("Filesystem")
}

/// Returns the phase of a volume; empty before the first one.
pub(super) fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("")
}

/// Returns the reclaim policy of a volume.
pub(super) fn reclaim_policy(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or("Retain")
}

fn attributes_classes_match(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let of_claim = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let of_volume = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    of_claim.unwrap_or("") == of_volume.unwrap_or("")
}

fn access_modes(volume: &PersistentVolume) -> &[String] {
    volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
}

fn access_modes_match(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    wanted.iter().all(|mode| access_modes(volume).contains(mode))
}

/// Why a volume that a claim names cannot be bound to it, in upstream's words.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let size = |quantity: Option<Quantity>| quantity.map_or(0, Quantity::value);
    if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    }
    let reason = if size(volume_capacity(volume)) < requested_storage(claim).value() {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim) {
        "storageClassName does not match"
    } else if !attributes_classes_match(claim, volume) {
        "volumeAttributesClassName does not match"
    } else if !volume_modes_match(claim, volume) {
        "incompatible volumeMode"
    } else if !access_modes_match(claim, volume) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// Returns the volume that is reserved for the claim, else the smallest available one that satisfies it. Volumes with
/// fewer access modes are preferred. With `delay_binding` only a reserved volume matches.
pub(super) fn find_matching_volume(
    claim: &PersistentVolumeClaim,
    volumes: &[Arc<PersistentVolume>],
    delay_binding: bool,
) -> Option<Arc<PersistentVolume>> {
    let mut by_modes: BTreeMap<(usize, &[String]), Vec<&Arc<PersistentVolume>>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| access_modes_match(claim, volume)) {
        let modes = access_modes(volume);
        by_modes.entry((modes.len(), modes)).or_default().push(volume);
    }
    by_modes.values().find_map(|volumes| find_smallest(claim, volumes, delay_binding)).cloned()
}

fn find_smallest<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &[&'a Arc<PersistentVolume>],
    delay_binding: bool,
) -> Option<&'a Arc<PersistentVolume>> {
    let (requested, class) = (requested_storage(claim), claim_class(claim));
    let selector: Option<Selector> =
        claim.spec.as_ref().and_then(|spec| spec.selector.clone()).and_then(|selector| selector.try_into().ok());
    let has_selector = claim.spec.as_ref().is_some_and(|spec| spec.selector.is_some());
    let suits = |volume: &PersistentVolume| {
        volume_capacity(volume).unwrap_or(Quantity::ZERO) >= requested
            && volume_modes_match(claim, volume)
            && attributes_classes_match(claim, volume)
            && volume.metadata.deletion_timestamp.is_none()
    };
    let is_free = |volume: &PersistentVolume| {
        let status = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        let selected = selector.as_ref().map_or(!has_selector, |selector| selector.matches(volume.labels()));
        let is_claimed = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
        !is_claimed && status == Some("Available") && selected && volume_class(volume) == class
    };
    let suitable = || volumes.iter().copied().filter(|volume| suits(volume));
    if let Some(reserved) = suitable().find(|volume| is_bound_to_claim(volume, claim)) {
        return Some(reserved);
    }
    let free = suitable().filter(|volume| !delay_binding && is_free(volume));
    free.min_by_key(|volume| (volume_capacity(volume), volume.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let mut spec = spec;
        if spec.get("accessModes").is_none() {
            spec["accessModes"] = json!(["ReadWriteOnce"]);
        }
        serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "ns", "uid": "u1"}, "spec": spec}))
            .unwrap()
    }

    fn volume(name: &str, size: &str, more: Value) -> Arc<PersistentVolume> {
        let mut spec = json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let object = json!({"metadata": {"name": name, "labels": {"size": size}}, "spec": spec, "status": {"phase": "Available"}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Returns the name of the matching volume.
    fn check(claim: &PersistentVolumeClaim, volumes: &[Arc<PersistentVolume>], delay_binding: bool) -> Option<String> {
        find_matching_volume(claim, volumes, delay_binding).map(|volume| volume.name_any())
    }

    #[test]
    fn smallest_sufficient_volume_matches() {
        let volumes =
            [volume("big", "10Gi", json!({})), volume("fit", "2Gi", json!({})), volume("small", "1Mi", json!({}))];
        let wanted = claim(json!({"resources": {"requests": {"storage": "1Gi"}}}));
        assert_eq!(check(&wanted, &volumes, false).as_deref(), Some("fit"));
        assert_eq!(check(&wanted, &volumes, true), None);
        let wanted = claim(
            json!({"resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"size": "10Gi"}}}),
        );
        assert_eq!(check(&wanted, &volumes, false).as_deref(), Some("big"));
    }

    #[test]
    fn reserved_volume_wins_and_foreign_ones_are_skipped() {
        let reserved = |uid: &str| json!({"claimRef": {"name": "c", "namespace": "ns", "uid": uid}});
        let wanted = claim(json!({"resources": {"requests": {"storage": "1Gi"}}}));
        let volumes = [volume("fit", "1Gi", json!({})), volume("reserved", "5Gi", reserved(""))];
        assert_eq!(check(&wanted, &volumes, true).as_deref(), Some("reserved"));
        let volumes = [volume("other", "1Gi", reserved("u2"))];
        assert_eq!(check(&wanted, &volumes, false), None);
    }

    #[test]
    fn class_mode_and_access_modes_must_match() {
        let wanted = claim(json!({"storageClassName": "fast", "volumeMode": "Block"}));
        let suitable = json!({"storageClassName": "fast", "volumeMode": "Block"});
        assert_eq!(check(&wanted, &[volume("v", "1Gi", suitable)], false).as_deref(), Some("v"));
        for wrong in [
            json!({"volumeMode": "Block"}),
            json!({"storageClassName": "fast"}),
            json!({"storageClassName": "fast", "volumeMode": "Block", "accessModes": ["ReadOnlyMany"]}),
        ] {
            assert_eq!(check(&wanted, &[volume("v", "1Gi", wrong.clone())], false), None, "{wrong}");
            assert!(mismatch(&volume("v", "1Gi", wrong), &wanted).is_some());
        }
    }
}
