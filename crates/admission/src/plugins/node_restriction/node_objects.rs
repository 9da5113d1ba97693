//! Other writes of a kubelet: leases, CSINodes, ResourceSlices, certificate requests, and the status of resized claims.

use api::{Value, meta, status::Status};

use super::NodeRequest;
use crate::{Operation, certificate_request};

const LEASES: &str = "kube-node-lease";
/// Claim status fields that a kubelet may change.
const KUBELET_CLAIM_FIELDS: &[&str] = &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"];
const SIGNERS: &[&str] = &["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Checks a write to a PersistentVolumeClaim.
pub fn check_claim(request: &NodeRequest<'_>) -> Result<(), Status> {
    let attributes = request.attributes;
    if attributes.subresource() != "status" {
        return request.deny("may only update PVC status");
    }
    let Some(old) = attributes.old.filter(|_| attributes.operation == Operation::Update) else {
        return request.deny_operation();
    };
    let (before, after) = (without_kubelet_fields(old), without_kubelet_fields(request.object));
    if before != after {
        let why = format!(
            "node {:?} is not allowed to update fields other than status.quantity and status.conditions: {}",
            request.node,
            format_difference(&before, &after)
        );
        return request.deny(why);
    }
    Ok(())
}

fn without_kubelet_fields(claim: &Value) -> Value {
    let mut claim = claim.clone();
    let status = meta::field_mut(&mut claim, "status");
    KUBELET_CLAIM_FIELDS.iter().for_each(|field| drop(status.remove(*field)));
    let metadata = meta::metadata_mut(&mut claim);
    ["resourceVersion", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
    claim
}

/// Formats the top-level fields that differ, before and after.
fn format_difference(before: &Value, after: &Value) -> String {
    let fields = ["metadata", "spec", "status"].into_iter().filter(|field| before[*field] != after[*field]);
    fields.map(|field| format!("{field}: {} -> {}", before[field], after[field])).collect::<Vec<_>>().join(", ")
}

/// Checks a write to a lease.
pub fn check_lease(request: &NodeRequest<'_>) -> Result<(), Status> {
    if request.attributes.namespace() != LEASES {
        return request.deny(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    check_own_name(request, "node lease")
}

/// Checks a write to a CSINode.
pub fn check_csi_node(request: &NodeRequest<'_>) -> Result<(), Status> {
    check_own_name(request, "CSINode")
}

fn check_own_name(request: &NodeRequest<'_>, what: &str) -> Result<(), Status> {
    if request.attributes.object_name(request.object) != request.node {
        return request.deny(format!("can only access {what} with the same name as the requesting node"));
    }
    Ok(())
}

/// Checks a write to a ResourceSlice.
pub fn check_resource_slice(request: &NodeRequest<'_>) -> Result<(), Status> {
    let (slice, verb) = match (request.attributes.operation, request.attributes.old) {
        (Operation::Create, _) => (request.object, "create"),
        (Operation::Delete, Some(old)) => (old, "delete"),
        _ => return Ok(()),
    };
    if meta::string_at(slice, &["spec", "nodeName"]) != request.node {
        return request.deny(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"));
    }
    Ok(())
}

/// Checks a CertificateSigningRequest of a node.
pub fn check_signing_request(request: &NodeRequest<'_>) -> Result<(), Status> {
    let signer = meta::string_at(request.object, &["spec", "signerName"]);
    if request.attributes.operation != Operation::Create || !SIGNERS.contains(&signer) {
        return Ok(());
    }
    let wanted = format!("system:node:{}", request.node);
    match certificate_request::parse_request_subject(request.object) {
        Err(why) => request.deny(format!("unable to parse csr: {why}")),
        Ok(subject) if subject.common_name != wanted => {
            request.deny(format!("can only create a node CSR with CN={wanted}"))
        }
        Ok(_) => Ok(()),
    }
}

/// Checks a PodCertificateRequest.
pub async fn check_pod_certificate_request(request: &NodeRequest<'_>) -> Result<(), Status> {
    let attributes = request.attributes;
    if attributes.operation != Operation::Create {
        return request.deny(format!("unexpected operation {}", attributes.operation.name()));
    }
    if !attributes.subresource().is_empty() {
        return request.deny(format!("unexpected subresource {}", attributes.subresource()));
    }
    let spec = |field: &str| meta::string_at(request.object, &["spec", field]);
    if spec("nodeName") != request.node {
        return request.deny(format!(
            "PodCertificateRequest.Spec.NodeName={:?}, which is not the requesting node {:?}",
            spec("nodeName"),
            request.node
        ));
    }
    let pod = request.get_pod(spec("podName")).await?;
    let named = format!("{}/{}", attributes.namespace(), spec("podName"));
    if meta::string_at(&pod, &["spec", "nodeName"]) != request.node {
        return request.deny(format!(
            "pod {named:?} is not running on node {:?} named in the PodCertificateRequest",
            request.node
        ));
    }
    if crate::pod::is_mirror_pod(&pod) {
        return request.deny(format!("pod {named:?} is a mirror pod"));
    }
    let account = meta::string_at(&pod, &["spec", "serviceAccountName"]);
    if spec("serviceAccountName") != account {
        return request.deny(format!(
            "PodCertificateRequest for pod {named:?} contains serviceAccountName ({:?}) that differs from running pod ({account:?})",
            spec("serviceAccountName")
        ));
    }
    check_uids(request, &pod, account).await
}

/// Checks that the UIDs of node, pod and service account match the existing objects.
async fn check_uids(request: &NodeRequest<'_>, pod: &Value, account: &str) -> Result<(), Status> {
    let attributes = request.attributes;
    let spec = |field: &str| meta::string_at(request.object, &["spec", field]);
    let node = attributes.get_object(("", "v1", "nodes"), "", request.node).await?.unwrap_or_default();
    let account = attributes.get_object(("", "v1", "serviceaccounts"), attributes.namespace(), account).await?;
    let account = account.unwrap_or_default();
    let named = format!("{}/{}", attributes.namespace(), spec("podName"));
    let other = |field: &str, object: &Value| spec(field) != meta::uid(object);
    let message = if other("nodeUID", &node) {
        let (given, found) = (spec("nodeUID"), meta::uid(&node));
        format!(
            "PodCertificateRequest for pod {named:?} names node UID {given:?}, inconsistent with the running node ({found:?})"
        )
    } else if other("podUID", pod) {
        let (given, found) = (spec("podUID"), meta::uid(pod));
        format!(
            "PodCertificateRequest for pod {named:?} contains pod UID ({given:?}) which differs from running pod {found:?}"
        )
    } else if other("serviceAccountUID", &account) {
        let (given, found) = (spec("serviceAccountUID"), meta::uid(&account));
        format!(
            "PodCertificateRequest for pod {named:?} names service account UID {given:?}, which differs from the running service \
             account ({found:?})"
        )
    } else {
        return Ok(());
    };
    Err(Status { code: 500, reason: "", message, details: None, continue_token: None })
}
