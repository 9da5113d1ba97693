//! Validation of the volumes of pods.

use super::projected;
use crate::{
    Value,
    validate::{Errors, at::At, names, path, volume_claim, volume_source as source},
};

/// A check of one source at its place.
type Check = fn(&At, &mut Errors);

/// Field, the name that upstream gives it when it is one too many, the name that it checks it under, and the check.
const SOURCES: &[(&str, &str, &str, Check)] = &[
    ("hostPath", "hostPath", "hostPath", source::host_path),
    ("gitRepo", "gitRepo", "gitRepo", git_repo),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", source::gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", source::aws_disk),
    ("secret", "secret", "secret", |at, e| files(at, "secretName", e)),
    ("nfs", "nfs", "nfs", source::nfs),
    ("iscsi", "iscsi", "iscsi", |at, e| source::iscsi(at, "must be valid format starting with iqn, eui, or naa", e)),
    ("glusterfs", "glusterfs", "glusterfs", source::glusterfs),
    ("flocker", "flocker", "flocker", source::flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", |at, e| {
        at.get("claimName").require(e);
    }),
    ("rbd", "rbd", "rbd", source::rbd),
    ("cinder", "cinder", "cinder", |at, e| source::cinder(at, &["name"], e)),
    ("cephfs", "cephFS", "cephfs", source::cephfs),
    ("quobyte", "quobyte", "quobyte", source::quobyte),
    ("downwardAPI", "downwarAPI", "downwardAPI", projected::downward),
    ("fc", "fc", "fc", source::fibre_channel),
    ("flexVolume", "flexVolume", "flexVolume", source::flex),
    ("configMap", "configMap", "configMap", |at, e| files(at, "name", e)),
    ("azureFile", "azureFile", "azureFile", source::azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", |at, e| {
        at.get("volumePath").require(e);
    }),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", |at, e| {
        at.get("pdID").require(e);
    }),
    ("portworxVolume", "portworxVolume", "portworxVolume", |at, e| {
        at.get("volumeID").require(e);
    }),
    ("azureDisk", "azureDisk", "azureDisk", source::azure_disk),
    ("storageos", "storageos", "storageos", |at, e| source::storage_os(at, &["name"], e)),
    ("projected", "projected", "projected", projected::check),
    ("scaleIO", "scaleIO", "scaleIO", source::scale_io),
    ("csi", "csi", "csi", csi),
    ("ephemeral", "ephemeral", "ephemeral", ephemeral),
    ("image", "image", "image", |at, e| at.get("pullPolicy").required_one_of(e, super::container::PULL_POLICIES)),
];

/// The faults of a pod's volumes. What is right is returned, by name.
pub(super) fn check<'v>(
    volumes: &At<'v, '_>,
    meta: Option<&Value>,
    is_pod: bool,
    e: &mut Errors,
) -> Vec<(&'v str, &'v Value)> {
    let pod = meta.map(|meta| At::top(meta).get("name").text()).unwrap_or_default();
    let created: Vec<String> = volumes
        .items()
        .filter(|volume| !pod.is_empty() && volume.get("ephemeral").exists())
        .map(|volume| format!("{pod}-{}", volume.get("name").text()))
        .collect();
    let mut right: Vec<(&str, &Value)> = Vec::new();
    for volume in volumes.items() {
        let name = volume.get("name");
        let mut faults = Vec::new();
        sources(&volume, pod, is_pod, &mut faults);
        name.required_form(&mut faults, names::label);
        if right.iter().any(|(other, _)| *other == name.text()) {
            name.duplicate(&mut faults, name.text());
        }
        if faults.is_empty() {
            right.push((name.text(), volume.value));
        }
        e.append(&mut faults);
        let claim = volume.get("persistentVolumeClaim");
        let claim = claim.get("claimName");
        if created.iter().any(|name| name == claim.text()) {
            claim.invalid_text(e, "must not reference a PVC that gets created for an ephemeral volume");
        }
    }
    right
}

fn sources(volume: &At, pod: &str, is_pod: bool, e: &mut Errors) {
    let mut count = 0;
    let empty = volume.get("emptyDir");
    if empty.exists() {
        count += 1;
        let limit = empty.get("sizeLimit");
        if limit.sign() < 0 {
            limit.forbidden(e, "SizeLimit field must be a valid resource quantity");
        }
    }
    for (field, surplus, place, check) in SOURCES {
        let source = volume.get(field);
        if !source.exists() {
            continue;
        }
        if count > 0 {
            volume.get(surplus).forbidden(e, "may not specify more than 1 volume type");
        } else {
            count += 1;
            check(&volume.called(place, source.value), e);
            if *field == "ephemeral" {
                claim_name(volume, pod, e);
            }
            if *field == "image" && is_pod {
                source.get("reference").require(e);
            }
        }
        if *field == "iscsi" {
            source::portal_length(volume, &source, e);
        }
    }
    if count == 0 {
        volume.required(e, "must specify a volume type");
    }
}

/// The claim of an ephemeral volume is named after pod and volume.
fn claim_name(volume: &At, pod: &str, e: &mut Errors) {
    let name = volume.get("name");
    if pod.is_empty() || name.is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for fault in names::subdomain(&claim) {
        name.invalid_text(e, format!("PVC name {claim:?}: {fault}"));
    }
}

fn git_repo(at: &At, e: &mut Errors) {
    at.get("repository").require(e);
    path::relative(&at.get("directory"), e);
}

/// The files of a Secret or ConfigMap, whose name is in `name`.
fn files(at: &At, name: &str, e: &mut Errors) {
    at.get(name).require(e);
    mode(&at.get("defaultMode"), e);
    at.get("items").items().for_each(|item| key_to_path(&item, e));
}

/// The faults of a key and the file that it becomes.
pub(super) fn key_to_path(at: &At, e: &mut Errors) {
    at.get("key").require(e);
    at.get("path").require(e);
    path::not_reserved(&at.get("path"), e);
    mode(&at.get("mode"), e);
}

/// The permissions of a file are nine bits.
pub(super) fn mode(at: &At, e: &mut Errors) {
    if at.exists() && !(0..=0o777).contains(&at.int()) {
        at.invalid(e, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn csi(at: &At, e: &mut Errors) {
    source::csi_driver(&at.get("driver"), e);
    let secret = at.get("nodePublishSecretRef");
    if secret.exists() && secret.get("name").require(e) {
        let name = secret.get("name").text();
        for fault in names::subdomain(name) {
            at.get("name").invalid_as(e, name, fault);
        }
    }
}

fn ephemeral(at: &At, e: &mut Errors) {
    let template = at.get("volumeClaimTemplate");
    if template.exists() {
        volume_claim::template(&template, e);
    } else {
        template.required(e, "");
    }
}
