//! Validation of volumes and mounts of pods.

use super::{enclosing_pod_spec, is_pod_spec};
use crate::validate::certificates;
use crate::validate::prelude::*;

/// Validates the volumes of a pod.
pub fn validate_volumes(list: &FieldCursor, e: &mut ErrorList) {
    let pod = pod_name(list.ancestor(1));
    let created: Vec<String> = list
        .items()
        .filter(|volume| !pod.is_empty() && volume.get("ephemeral").exists())
        .map(|volume| format!("{pod}-{}", volume.text_at("name")))
        .collect();
    let mut right: Vec<&str> = Vec::new();
    for volume in list.items() {
        let (name, before) = (volume.get("name"), e.len());
        check_block("Volume", &volume, e);
        if right.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        if e.len() == before {
            right.push(name.text());
        }
        let claim = volume.get("persistentVolumeClaim");
        let claim = claim.get("claimName");
        if created.iter().any(|name| name == claim.text()) {
            claim.invalid_text(e, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
}

/// The name of the pod; empty for a template.
fn pod_name<'v>(spec: &FieldCursor<'v, '_>) -> &'v str {
    if is_pod_spec(spec) { spec.ancestor(1).get("metadata").text_at("name") } else { "" }
}

/// Validates the claim name of an ephemeral volume.
pub fn validate_created_claim_name(volume: &FieldCursor, e: &mut ErrorList) {
    let (pod, name) = (pod_name(volume.ancestor(2)), volume.get("name"));
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for fault in names::check_dns_subdomain(&claim) {
        name.invalid_text(e, format!("PVC name {claim:?}: {fault}"));
    }
}

/// Requires the image reference in pods.
pub fn validate_image_of_pod(image: &FieldCursor, e: &mut ErrorList) {
    if is_pod_spec(image.ancestor(3)) {
        image.get("reference").require_value(e);
    }
}

/// Returns a valid volume by name; validity is only checked after an error.
fn find_volume<'v>(part: &FieldCursor<'v, '_>, name: &str, e: &ErrorList) -> Option<&'v Value> {
    let spec = enclosing_pod_spec(part);
    let volumes = spec.get("volumes");
    let mut named = volumes.items().filter(|volume| volume.text_at("name") == name);
    named.find(|volume| e.is_empty() || !violates_block("Volume", volume)).map(|volume| volume.value)
}

/// Validates a mount: an existing volume that is not a device.
pub fn validate_mounted_volume(mount: &FieldCursor, e: &mut ErrorList) {
    let (name, point) = (mount.get("name"), mount.get("mountPath"));
    let devices = mount.ancestor(2).get("volumeDevices");
    if find_volume(mount, name.text(), e).is_none() {
        name.not_found(e);
    }
    if devices.find_by("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeDevices");
    }
    if devices.find_by("devicePath", point.text()).is_some() {
        point.invalid_text(e, "must not already exist as a path in volumeDevices");
    }
}

pub fn validate_mount_points(list: &FieldCursor, e: &mut ErrorList) {
    list.for_each_duplicate(
        |mount| mount.text_at("mountPath"),
        |mount, _| mount.get("mountPath").invalid_text(e, "must be unique"),
    );
}

/// Validates a block device.
pub fn validate_device(device: &FieldCursor, e: &mut ErrorList) {
    let (name, place) = (device.get("name"), device.get("devicePath"));
    let mounts = device.ancestor(2).get("volumeMounts");
    name.require_value(e);
    match find_volume(device, name.text(), e) {
        None => name.not_found(e),
        Some(source) if source.get("persistentVolumeClaim").is_none() && source.get("ephemeral").is_none() => {
            let message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            name.invalid_text(e, message);
        }
        Some(_) => {}
    }
    place.require_value(e);
    if place.text().split('/').any(|part| part == "..") {
        place.invalid_text(e, "can not contain backsteps ('..')");
    }
    if mounts.find_by("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeMounts");
    }
    if mounts.find_by("mountPath", place.text()).is_some() {
        place.invalid_text(e, "must not already exist as a place in volumeMounts");
    }
}

pub fn validate_device_paths(list: &FieldCursor, e: &mut ErrorList) {
    let up = |path: &str| path.split('/').any(|part| part == "..");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for device in list.items() {
        let key = (device.text_at("name"), device.text_at("devicePath"));
        if !key.0.is_empty() && seen.iter().any(|(name, _)| *name == key.0) {
            device.get("name").invalid_text(e, "must be unique");
        }
        if seen.iter().any(|(_, path)| *path == key.1 && !up(path)) {
            device.get("devicePath").invalid_text(e, "must be unique");
        }
        seen.push(key);
    }
}

const PROJECTED_SOURCES: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// Rejects conflicting paths of projected sources.
pub fn validate_projected_paths(at: &FieldCursor, e: &mut ErrorList) {
    let mut paths: Vec<&str> = Vec::new();
    for source in at.get("sources").items() {
        for kind in PROJECTED_SOURCES {
            let part = source.get(kind);
            let mut claim = |path, shown: &str| {
                if paths.contains(&path) {
                    at.invalid_as(e, shown, "conflicting duplicate paths");
                }
                if !path.is_empty() {
                    paths.push(path);
                }
            };
            let named = matches!(kind, "secret" | "configMap");
            for path in part.get("items").items().map(|item| item.text_at("path")) {
                claim(path, if named { part.text_at("name") } else { path });
            }
            let own: &[&str] = match kind {
                "clusterTrustBundle" => &["path"],
                "podCertificate" => &["credentialBundlePath", "keyPath", "certificateChainPath"],
                _ => &[],
            };
            own.iter().for_each(|field| claim(part.text_at(field), part.text_at(field)));
        }
    }
}

pub fn validate_named_bundle(name: &FieldCursor, e: &mut ErrorList) {
    for fault in certificates::bundle_name_errors(name.text()) {
        name.invalid_text(e, format!("not a valid clustertrustbundlename: {fault}"));
    }
}

/// Requires domain-prefixed annotation keys for a signer.
pub fn validate_user_annotations(notes: &FieldCursor, e: &mut ErrorList) {
    for (key, _) in notes.entries() {
        let key = key.to_lowercase();
        let before = e.len();
        notes.check_format_as(e, &key, names::check_qualified_name);
        if e.len() == before && !key.contains('/') {
            notes.invalid_as(e, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
    }
}
