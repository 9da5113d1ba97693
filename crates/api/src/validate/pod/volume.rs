//! The volumes of a pod, what they are made of, and where containers have them.

use super::{is_pod, spec_of};
use crate::validate::certificates;
use crate::validate::prelude::*;

/// The faults of a pod's volumes.
pub fn volumes(list: &At, e: &mut Errors) {
    let pod = pod_name(list.up(1));
    let created: Vec<String> = list
        .items()
        .filter(|volume| !pod.is_empty() && volume.get("ephemeral").exists())
        .map(|volume| format!("{pod}-{}", volume.text_of("name")))
        .collect();
    let mut right: Vec<&str> = Vec::new();
    for volume in list.items() {
        let (name, before) = (volume.get("name"), e.len());
        rules::check("Volume", &volume, e);
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

/// The name of the pod that a specification is of; a template has none.
fn pod_name<'v>(spec: &At<'v, '_>) -> &'v str {
    if is_pod(spec) { spec.up(1).get("metadata").text_of("name") } else { "" }
}

/// The claim of an ephemeral volume is named after pod and volume.
pub fn created_claim_name(volume: &At, e: &mut Errors) {
    let (pod, name) = (pod_name(volume.up(2)), volume.get("name"));
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for fault in names::subdomain(&claim) {
        name.invalid_text(e, format!("PVC name {claim:?}: {fault}"));
    }
}

/// An image is there at the latest in the pod.
pub fn image_of_pod(image: &At, e: &mut Errors) {
    if is_pod(image.up(3)) {
        image.get("reference").require(e);
    }
}

/// A volume by its name. One with faults of its own counts as none; as long as there are no faults at all, none has.
fn volume<'v>(part: &At<'v, '_>, name: &str, e: &Errors) -> Option<&'v Value> {
    let spec = spec_of(part);
    let volumes = spec.get("volumes");
    let mut named = volumes.items().filter(|volume| volume.text_of("name") == name);
    named.find(|volume| e.is_empty() || !rules::is_faulty("Volume", volume)).map(|volume| volume.value)
}

/// A mount has a volume that is there, and no device has it too.
pub fn mounted_volume(mount: &At, e: &mut Errors) {
    let (name, point) = (mount.get("name"), mount.get("mountPath"));
    let devices = mount.up(2).get("volumeDevices");
    if volume(mount, name.text(), e).is_none() {
        name.not_found(e);
    }
    if devices.find("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeDevices");
    }
    if devices.find("devicePath", point.text()).is_some() {
        point.invalid_text(e, "must not already exist as a path in volumeDevices");
    }
}

pub fn mount_points(list: &At, e: &mut Errors) {
    list.unique(
        |mount| mount.text_of("mountPath"),
        |mount, _| mount.get("mountPath").invalid_text(e, "must be unique"),
    );
}

/// The faults of one device.
pub fn device(device: &At, e: &mut Errors) {
    let (name, path) = (device.get("name"), device.get("devicePath"));
    let mounts = device.up(2).get("volumeMounts");
    name.require(e);
    match volume(device, name.text(), e) {
        None => name.not_found(e),
        Some(source) if source.get("persistentVolumeClaim").is_none() && source.get("ephemeral").is_none() => {
            let message = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
            name.invalid_text(e, message);
        }
        Some(_) => {}
    }
    path.require(e);
    if path.text().split('/').any(|part| part == "..") {
        path.invalid_text(e, "can not contain backsteps ('..')");
    }
    if mounts.find("name", name.text()).is_some() {
        name.invalid_text(e, "must not already exist in volumeMounts");
    }
    if mounts.find("mountPath", path.text()).is_some() {
        path.invalid_text(e, "must not already exist as a path in volumeMounts");
    }
}

pub fn device_paths(list: &At, e: &mut Errors) {
    let up = |path: &str| path.split('/').any(|part| part == "..");
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for device in list.items() {
        let key = (device.text_of("name"), device.text_of("devicePath"));
        if !key.0.is_empty() && seen.iter().any(|(name, _)| *name == key.0) {
            device.get("name").invalid_text(e, "must be unique");
        }
        if seen.iter().any(|(_, path)| *path == key.1 && !up(path)) {
            device.get("devicePath").invalid_text(e, "must be unique");
        }
        seen.push(key);
    }
}

const KINDS: [&str; 6] =
    ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate"];

/// A path can be taken by one source.
pub fn projected_paths(at: &At, e: &mut Errors) {
    let mut paths: Vec<&str> = Vec::new();
    for source in at.get("sources").items() {
        for kind in KINDS {
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
            for path in part.get("items").items().map(|item| item.text_of("path")) {
                claim(path, if named { part.text_of("name") } else { path });
            }
            let own: &[&str] = match kind {
                "clusterTrustBundle" => &["path"],
                "podCertificate" => &["credentialBundlePath", "keyPath", "certificateChainPath"],
                _ => &[],
            };
            own.iter().for_each(|field| claim(part.text_of(field), part.text_of(field)));
        }
    }
}

pub fn named_bundle(name: &At, e: &mut Errors) {
    for fault in certificates::bundle_name(name.text()) {
        name.invalid_text(e, format!("not a valid clustertrustbundlename: {fault}"));
    }
}

/// The faults of annotations for a signer: they have a domain.
pub fn user_annotations(notes: &At, e: &mut Errors) {
    for (key, _) in notes.entries() {
        let key = key.to_lowercase();
        let before = e.len();
        notes.form_as(e, &key, names::qualified);
        if e.len() == before && !key.contains('/') {
            notes.invalid_as(e, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        }
    }
}
