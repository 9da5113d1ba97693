//! PersistentVolumes of the local-path provisioner: which claims it can serve, and the volume of a claim.

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{FINALIZER, PROVISIONED_BY, PROVISIONER};

/// Why a claim cannot be served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedClaim {
    #[error("unsupported access mode {0}: a node-local directory is ReadWriteOnce or ReadWriteOncePod")]
    AccessMode(String),
    #[error("unsupported volume mode Block: the provisioner makes directories")]
    Block,
    #[error("claim.spec.selector is not supported by the provisioner")]
    Selector,
    #[error("claim.spec.dataSource is not supported by the provisioner")]
    DataSource,
    #[error("unsupported parameter {name} in StorageClass {class}")]
    Parameter { class: String, name: String },
    #[error("unsupported mount option {option} in StorageClass {class}")]
    MountOption { class: String, option: String },
}

/// Checks that a directory can be all that the claim and its class ask for.
pub fn check_claim(claim: &PersistentVolumeClaim, class: &StorageClass) -> Result<(), UnsupportedClaim> {
    let class_name = class.name_any();
    if let Some(name) = class.parameters.iter().flatten().map(|(name, _)| name.clone()).next() {
        return Err(UnsupportedClaim::Parameter { class: class_name, name });
    }
    if let Some(option) = class.mount_options.iter().flatten().next().cloned() {
        return Err(UnsupportedClaim::MountOption { class: class_name, option });
    }
    let Some(spec) = &claim.spec else { return Ok(()) };
    if spec.volume_mode.as_deref() == Some("Block") {
        return Err(UnsupportedClaim::Block);
    }
    if spec.selector.is_some() {
        return Err(UnsupportedClaim::Selector);
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err(UnsupportedClaim::DataSource);
    }
    let is_local = |mode: &&String| matches!(mode.as_str(), "ReadWriteOnce" | "ReadWriteOncePod");
    match spec.access_modes.iter().flatten().find(|mode| !is_local(mode)) {
        Some(mode) => Err(UnsupportedClaim::AccessMode(mode.clone())),
        None => Ok(()),
    }
}

/// The name of a claim's volume.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<String> {
    Some(format!("pvc-{}", claim.metadata.uid.as_deref()?))
}

/// Builds the volume of a claim at `path` on `node`.
pub fn build_volume(claim: &PersistentVolumeClaim, class: &StorageClass, node: &str, name: &str, path: &str) -> Value {
    let spec = claim.spec.clone().unwrap_or_default();
    let requested = spec.resources.and_then(|resources| resources.requests?.remove("storage"));
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] },
    ] }] } });
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": { PROVISIONED_BY: PROVISIONER },
            "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": { "storage": requested.unwrap_or_else(|| Quantity("0".into())) },
            "accessModes": spec.access_modes,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.name_any(),
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(),
                "name": claim.name_any(),
                "uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version,
            },
            "local": { "path": path },
            "nodeAffinity": affinity,
        },
    })
}

/// Reports whether this provisioner made the volume on `node` at `path`: an annotation alone does not make it remove a
/// directory.
pub fn is_volume_at(volume: &PersistentVolume, node: &str, path: &str) -> bool {
    let is_ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == PROVISIONER);
    let Some(spec) = &volume.spec else { return false };
    let is_there = spec.local.as_ref().is_some_and(|local| local.path == path);
    let terms = spec.node_affinity.iter().filter_map(|affinity| affinity.required.as_ref());
    let expressions = terms.flat_map(|required| &required.node_selector_terms).flat_map(|term| &term.match_expressions);
    let names_node =
        expressions.flatten().any(|expression| expression.values.iter().flatten().any(|name| name == node));
    is_ours && is_there && names_node
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(extra: Value) -> StorageClass {
        let mut class = json!({ "metadata": { "name": "local-path" }, "provisioner": PROVISIONER });
        class.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(class).unwrap()
    }

    fn claim(spec: Value) -> PersistentVolumeClaim {
        let metadata = json!({ "name": "data", "namespace": "default", "uid": "1-2" });
        serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
    }

    #[test]
    fn what_a_directory_cannot_be_is_refused_by_name() {
        let cases = [
            (json!({ "accessModes": ["ReadWriteMany"] }), json!({}), "ReadWriteMany"),
            (json!({ "volumeMode": "Block" }), json!({}), "Block"),
            (json!({ "selector": {} }), json!({}), "selector"),
            (json!({ "dataSource": { "kind": "VolumeSnapshot", "name": "s" } }), json!({}), "dataSource"),
            (json!({}), json!({ "parameters": { "nodePath": "/x" } }), "nodePath"),
            (json!({}), json!({ "mountOptions": ["ro"] }), "mount option ro"),
        ];
        for (spec, extra, word) in cases {
            let error = check_claim(&claim(spec), &class(extra)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(check_claim(&claim(json!({ "accessModes": ["ReadWriteOnce"] })), &class(json!({}))), Ok(()));
    }

    #[test]
    fn only_volumes_that_were_made_here_are_ours() {
        let claim =
            claim(json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }));
        assert_eq!(volume_name(&claim).as_deref(), Some("pvc-1-2"));
        let volume = build_volume(&claim, &class(json!({})), "node-1", "pvc-1-2", "/data/pvc-1-2");
        assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
        let parse = |volume: &Value| serde_json::from_value::<PersistentVolume>(volume.clone()).unwrap();
        assert!(is_volume_at(&parse(&volume), "node-1", "/data/pvc-1-2"));
        assert!(!is_volume_at(&parse(&volume), "node-2", "/data/pvc-1-2"));
        let mut forged = volume.clone();
        forged["spec"]["local"]["path"] = "/".into();
        assert!(!is_volume_at(&parse(&forged), "node-1", "/data/pvc-1-2"));
        let mut foreign = volume;
        foreign["metadata"]["annotations"] = json!({});
        assert!(!is_volume_at(&parse(&foreign), "node-1", "/data/pvc-1-2"));
    }
}
