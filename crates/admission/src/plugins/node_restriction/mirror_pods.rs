//! Mirror pods of a kubelet: they must be bound to its node and reference no API objects.

use api::{Value, meta, status::Status};

use super::{super::service_account_secrets::references_secrets, NodeRequest};
use crate::{error::DenialReason, pod};

/// Checks a pod that a kubelet creates.
pub async fn check_mirror_pod(request: &NodeRequest<'_>) -> Result<(), Status> {
    let (node, object) = (request.node, request.object);
    if !pod::is_mirror_pod(object) {
        let why = format!(
            "pod does not have {:?} annotation, node {node:?} can only create mirror pods",
            pod::MIRROR_ANNOTATION
        );
        return request.deny(why);
    }
    if meta::string_at(object, &["spec", "nodeName"]) != node {
        return request.deny(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    check_owner_reference(request).await?;
    match find_object_reference(object) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => request.deny(format!("node {node:?} can not create pods that reference {what}")),
        Err(why) => request.deny(format!("error checking mirror pod for API references: {why}")),
    }
}

async fn check_owner_reference(request: &NodeRequest<'_>) -> Result<(), Status> {
    let node = request.node;
    let owner = match meta::list_at(request.object, &["metadata", "ownerReferences"]) {
        [] => {
            return request.deny(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        [owner] => owner,
        _ => {
            let why = format!("node {node:?} can only create pods with a single owner reference set to itself");
            return request.deny(why);
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != node {
        return request.deny(format!("node {node:?} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        let why = format!("node {node:?} can only create pods with a controller owner reference set to itself");
        return request.deny(why);
    }
    if owner["blockOwnerDeletion"] == true {
        return request.deny(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
    }
    let nodes = apiserver_core::loopback::find_resource("", "v1", "nodes")?;
    let (found, _) = request.attributes.registry.read_object(nodes, "", node).await?;
    let wanted = meta::string_at(owner, &["uid"]);
    if wanted != meta::uid(&found) {
        return request.deny(format!("node {node} UID mismatch: expected {wanted} got {}", meta::uid(&found)));
    }
    Ok(())
}

/// Volume sources that reference API objects, and the names that messages use.
const VOLUMES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTIONS: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// Returns the first kind of API object that a pod references.
fn find_object_reference(object: &Value) -> Result<Option<&'static str>, DenialReason> {
    if !meta::string_at(object, &["spec", "serviceAccountName"]).is_empty() {
        return Ok(Some("serviceaccounts"));
    }
    if references_secrets(object) {
        return Ok(Some("secrets"));
    }
    if references_config_maps(object) {
        return Ok(Some("configmaps"));
    }
    if !meta::list_at(object, &["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    let among = |object: &Value, table: &[(&str, &'static str)]| {
        table.iter().find(|(field, _)| meta::value_at(object, &[field]).is_some()).map(|(_, what)| *what)
    };
    for volume in meta::list_at(object, &["spec", "volumes"]) {
        if let Some(what) = among(volume, VOLUMES) {
            return Ok(Some(what));
        }
        for source in meta::list_at(volume, &["projected", "sources"]) {
            match among(source, PROJECTIONS) {
                None if meta::value_at(source, &["downwardAPI"]).is_some() => {}
                None => {
                    return Err(format!(
                        "unknown source for projected volume {:?}",
                        meta::string_at(volume, &["name"])
                    )
                    .into());
                }
                found => return Ok(found),
            }
        }
    }
    Ok(None)
}

fn references_config_maps(object: &Value) -> bool {
    let by_env = |container: &Value| {
        let keys = meta::list_at(container, &["env"])
            .iter()
            .filter_map(|env| meta::value_at(env, &["valueFrom", "configMapKeyRef"]));
        let whole =
            meta::list_at(container, &["envFrom"]).iter().filter_map(|from| meta::value_at(from, &["configMapRef"]));
        keys.chain(whole).any(|reference| !meta::string_at(reference, &["name"]).is_empty())
    };
    let volumes = meta::list_at(object, &["spec", "volumes"]).iter();
    let sources = volumes.clone().flat_map(|volume| meta::list_at(volume, &["projected", "sources"]));
    pod::containers(object).any(by_env)
        || volumes.chain(sources).any(|volume| !meta::string_at(volume, &["configMap", "name"]).is_empty())
}
