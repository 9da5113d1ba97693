//! The volumes of a pod, where they depend on each other and on the pod.

use super::is_pod;
use crate::validate::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! {
    volumes created_claim_name image_of_pod
};

/// The faults of a pod's volumes.
fn volumes(list: &At, e: &mut Errors) {
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
fn created_claim_name(volume: &At, e: &mut Errors) {
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
fn image_of_pod(image: &At, e: &mut Errors) {
    if is_pod(image.up(3)) {
        image.get("reference").require(e);
    }
}
