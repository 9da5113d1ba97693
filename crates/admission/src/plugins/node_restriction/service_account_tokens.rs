//! Token requests: a kubelet may request tokens bound to pods on its node, for audiences that the pod uses.

use api::{Value, meta, status::Status};
use apiserver_core::attributes::ResourceAttributes;
use authz::{Authorizers, aggregate_errors};

use super::NodeRequest;
use crate::{AdmissionAttributes, DenialReason, Operation};

/// Checks a TokenRequest.
pub async fn check_token_request(request: &NodeRequest<'_>, authorizers: &Authorizers) -> Result<(), Status> {
    let attributes = request.attributes;
    if attributes.operation != Operation::Create || attributes.subresource() != "token" {
        return Ok(());
    }
    let reference = &request.object["spec"]["boundObjectRef"];
    let text = |field: &str| meta::string_at(reference, &[field]);
    if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
        return request.deny("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return request.deny("node requested token with a pod binding without a uid");
    }
    let pod = request.get_pod(text("name")).await?;
    if text("uid") != meta::uid(&pod) {
        return request.deny(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted \
             and then recreated",
            text("uid")
        ));
    }
    if meta::string_at(&pod, &["spec", "nodeName"]) != request.node {
        return request.deny("node requested token bound to a pod scheduled on a different node");
    }
    match check_audience(attributes, request.object, &pod, authorizers).await {
        Ok(()) => Ok(()),
        Err(why) => request.deny(why),
    }
}

async fn check_audience(
    attributes: &AdmissionAttributes<'_>,
    request: &Value,
    pod: &Value,
    authorizers: &Authorizers,
) -> Result<(), DenialReason> {
    let audience = match meta::list_at(request, &["spec", "audiences"]) {
        [] => "",
        [one] => one.as_str().unwrap_or_default(),
        _ => return Err("node may only request 0 or 1 audiences".into()),
    };
    let named = pod_requires_audience(attributes, pod, audience).await;
    if named.map_err(|why| format!("error validating audience {audience:?}: {why}"))? {
        return Ok(());
    }
    let resource = ResourceAttributes {
        version: "v1",
        resource: audience,
        namespace: attributes.namespace(),
        name: &attributes.target.name,
        ..Default::default()
    };
    let verb = "request-serviceaccounts-token-audience";
    if attributes.authorize_user(authorizers, verb, resource).await.is_allowed() {
        return Ok(());
    }
    Err(format!(
        "audience {audience:?} not found in pod spec volume, {} is not authorized to request tokens for this audience",
        attributes.user().name
    )
    .into())
}

/// Whether a volume of the pod requires a token for an audience.
async fn pod_requires_audience(
    attributes: &AdmissionAttributes<'_>,
    pod: &Value,
    audience: &str,
) -> Result<bool, DenialReason> {
    let mut errors = Vec::new();
    for volume in meta::list_at(pod, &["spec", "volumes"]) {
        let sources = meta::list_at(volume, &["projected", "sources"]).iter();
        let mut tokens = sources.filter_map(|source| meta::value_at(source, &["serviceAccountToken"]));
        if tokens.any(|token| meta::string_at(token, &["audience"]) == audience) {
            return Ok(true);
        }
        match csi_driver_name(attributes, pod, volume).await {
            Err(status) => errors.push(status.message),
            Ok(driver) if driver.is_empty() => {}
            Ok(driver) => match get_required_object(attributes, "storage.k8s.io", "csidrivers", "", &driver).await {
                Err(status) => errors.push(status.message),
                Ok(driver) => {
                    let requests = meta::list_at(&driver, &["spec", "tokenRequests"]);
                    if requests.iter().any(|request| meta::string_at(request, &["audience"]) == audience) {
                        return Ok(true);
                    }
                }
            },
        }
    }
    aggregate_errors(errors).map_or(Ok(false), |error| Err(error.into()))
}

/// The CSI driver of a volume; empty if there is none.
async fn csi_driver_name(attributes: &AdmissionAttributes<'_>, pod: &Value, volume: &Value) -> Result<String, Status> {
    let claim = if meta::value_at(volume, &["ephemeral", "volumeClaimTemplate"]).is_some() {
        format!("{}-{}", meta::name(pod), meta::string_at(volume, &["name"]))
    } else {
        meta::string_at(volume, &["persistentVolumeClaim", "claimName"]).to_owned()
    };
    if claim.is_empty() {
        return Ok(meta::string_at(volume, &["csi", "driver"]).to_owned());
    }
    let claim = get_required_object(attributes, "", "persistentvolumeclaims", attributes.namespace(), &claim).await?;
    let name = meta::string_at(&claim, &["spec", "volumeName"]);
    let volume = get_required_object(attributes, "", "persistentvolumes", "", name).await?;
    Ok(meta::string_at(&volume, &["spec", "csi", "driver"]).to_owned())
}

async fn get_required_object(
    attributes: &AdmissionAttributes<'_>,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<Value, Status> {
    let resource = apiserver_core::loopback::find_resource(group, "v1", resource)?;
    Ok(attributes.registry.read_object(resource, namespace, name).await?.0)
}
