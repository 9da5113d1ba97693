//! Pods: a kubelet may create and delete its mirror pods, and update the status of, delete and evict pods on its node.

use api::{Value, meta, status::Status};

use super::{NodeRequest, mirror_pods};
use crate::Operation;

/// Checks a write to a pod.
pub async fn check_pod(request: &NodeRequest<'_>) -> Result<(), Status> {
    match request.attributes.subresource() {
        "" => check_pod_write(request).await,
        "status" => check_pod_status(request),
        "eviction" => check_eviction(request).await,
        other => {
            request.deny(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
    }
}

async fn check_pod_write(request: &NodeRequest<'_>) -> Result<(), Status> {
    let node = request.node;
    match request.attributes.operation {
        Operation::Create => mirror_pods::check_mirror_pod(request).await,
        Operation::Delete => {
            // The name is empty for a collection deletion.
            let pod = request.get_pod(&request.attributes.target.name).await?;
            if meta::string_at(&pod, &["spec", "nodeName"]) != node {
                return request.deny(format!("node {node:?} can only delete pods with spec.nodeName set to itself"));
            }
            Ok(())
        }
        operation => request.deny(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            operation.name()
        )),
    }
}

fn check_pod_status(request: &NodeRequest<'_>) -> Result<(), Status> {
    let (node, pod) = (request.node, request.object);
    let Some(old) = request.attributes.old.filter(|_| request.attributes.operation == Operation::Update) else {
        return request.deny_operation();
    };
    if meta::string_at(old, &["spec", "nodeName"]) != node {
        let why = format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself");
        return request.deny(why);
    }
    let same = |path: &[&str]| meta::value_at(old, path) == meta::value_at(pod, path);
    if !same(&["metadata", "labels"]) {
        return request.deny(format!("node {node:?} cannot update labels through pod status"));
    }
    if resource_claims(old) != resource_claims(pod) {
        return request.deny(format!("node {node:?} cannot update resource claim statues"));
    }
    if !same(&["status", "extendedResourceClaimStatus"]) {
        return request.deny(format!("node {node:?} cannot update extended resource claim status"));
    }
    Ok(())
}

fn resource_claims(pod: &Value) -> Vec<(&str, Option<&Value>)> {
    let list = meta::list_at(pod, &["status", "resourceClaimStatuses"]).iter();
    list.map(|claim| (meta::string_at(claim, &["name"]), meta::value_at(claim, &["resourceClaimName"]))).collect()
}

async fn check_eviction(request: &NodeRequest<'_>) -> Result<(), Status> {
    if request.attributes.operation != Operation::Create {
        return request.deny(format!("unexpected operation {}", request.attributes.operation.name()));
    }
    let name = match request.attributes.target.name.as_str() {
        "" => meta::name(request.object),
        name => name,
    };
    if name.is_empty() {
        return request.deny("could not determine pod from request data");
    }
    let pod = request.get_pod(name).await?;
    if meta::string_at(&pod, &["spec", "nodeName"]) != request.node {
        let why = format!("node {} can only evict pods with spec.nodeName set to itself", request.node);
        return request.deny(why);
    }
    Ok(())
}
