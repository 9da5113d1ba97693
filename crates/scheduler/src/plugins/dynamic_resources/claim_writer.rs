//! Writes of claims: allocation and reservation, their release, and claims for extended resources.

use std::sync::Arc;

use client::ApiErrorExt;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{claim_tracker::allocation, device_requests::claim_key, extended_resources::ExtendedClaim};
use crate::views::pod_info::PodInfo;

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Number of tries of a write that conflicts.
const CONFLICT_TRIES: usize = 5;

/// A write of a claim that failed.
enum WriteError {
    /// The claim was changed meanwhile.
    Conflict(String),
    /// Anything else.
    Other(String),
}

impl WriteError {
    fn new(what: &str, error: &kube::Error) -> Self {
        let message = format!("{what}: {}", error.server_message());
        if error.is_conflict() { Self::Conflict(message) } else { Self::Other(message) }
    }
}

/// A claim could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClaimWriteError(String);

fn api_of(client: &Client, claim: &ResourceClaim) -> Api<ResourceClaim> {
    Api::namespaced(client.clone(), claim.metadata.namespace.as_deref().unwrap_or(""))
}

/// Writes the allocation and the reservation of a claim and returns it as it was written.
pub async fn bind_claim(
    client: &Client,
    pod: &PodInfo,
    claim: &ResourceClaim,
    allocation: Option<&AllocationResult>,
) -> Result<Arc<ResourceClaim>, ClaimWriteError> {
    let api = api_of(client, claim);
    let mut current = claim.clone();
    let mut attempt = 0;
    loop {
        attempt += 1;
        match write_claim(&api, pod, current, allocation).await {
            Ok(written) => return Ok(Arc::new(written)),
            Err(WriteError::Conflict(_)) if attempt < CONFLICT_TRIES => {
                let fresh = api.get(&claim.name_any()).await;
                current = fresh.map_err(|error| {
                    let (key, error) = (claim_key(claim), error.server_message());
                    ClaimWriteError(format!("get updated claim {key} after conflict: {error}"))
                })?;
            }
            Err(WriteError::Conflict(message) | WriteError::Other(message)) => return Err(ClaimWriteError(message)),
        }
    }
}

/// Patches what is decided, and nothing else: drivers find their opaque parameters as users wrote them.
async fn write_claim(
    api: &Api<ResourceClaim>,
    pod: &PodInfo,
    mut claim: ResourceClaim,
    wanted: Option<&AllocationResult>,
) -> Result<ResourceClaim, WriteError> {
    let key = claim_key(&claim);
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(WriteError::Other(format!("claim {key} got deleted in the meantime")));
    }
    if wanted.is_some() {
        if allocation(&claim).is_some() {
            return Err(WriteError::Other(format!("claim {key} got allocated elsewhere in the meantime")));
        }
        if !claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            let finalizers = claim.finalizers().iter().map(String::as_str).chain([FINALIZER]).collect();
            let written = patch_finalizers(api, &claim, finalizers).await;
            claim = written.map_err(|error| WriteError::new(&format!("add finalizer to claim {key}"), &error))?;
        }
    } else if allocation(&claim).is_none() {
        return Err(WriteError::Other(format!("claim {key} got deallocated elsewhere in the meantime")));
    }
    let mut reserved = claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
    reserved.push(ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".into(),
        name: pod.name.to_string(),
        uid: pod.uid.to_string(),
    });
    let mut patch = json!({"metadata": version_of(&claim), "status": {"reservedFor": reserved}});
    if let Some(wanted) = wanted {
        patch["status"]["allocation"] = json!(wanted);
    }
    if allocation(&claim).is_none_or(|allocation| allocation.allocation_timestamp.is_none()) {
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
        patch["status"]["allocation"]["allocationTimestamp"] = json!(now);
    }
    let what = match wanted {
        Some(_) => format!("add allocation and reservation to claim {key}"),
        None => format!("add reservation to claim {key}"),
    };
    let written = api.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    written.map_err(|error| WriteError::new(&what, &error))
}

/// The version that a patch of a claim is for; another one is a conflict.
fn version_of(claim: &ResourceClaim) -> Value {
    json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version})
}

async fn patch_finalizers(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    finalizers: Vec<&str>,
) -> Result<ResourceClaim, kube::Error> {
    let mut metadata = version_of(claim);
    metadata["finalizers"] = json!(finalizers);
    let patch = Patch::Merge(json!({"metadata": metadata}));
    api.patch(&claim.name_any(), &PatchParams::default(), &patch).await
}

/// Creates the claim for the extended resources of a pod.
pub async fn create_extended_claim(client: &Client, claim: &ExtendedClaim) -> Result<ResourceClaim, ClaimWriteError> {
    let mut new = (*claim.claim).clone();
    (new.metadata.name, new.metadata.uid, new.status) = (None, None, None);
    let key = format!("{}/", new.metadata.namespace.as_deref().unwrap_or(""));
    let created = api_of(client, &claim.claim).create(&PostParams::default(), &new).await;
    created.map_err(|error| {
        ClaimWriteError(format!("create claim for extended resources {key}: {}", error.server_message()))
    })
}

/// Tells the kubelet by the pod's status which requests of a claim stand for those of containers.
pub async fn write_request_mappings(
    client: &Client,
    pod: &PodInfo,
    name: &str,
    claim: &ExtendedClaim,
) -> Result<(), ClaimWriteError> {
    let status = json!({"requestMappings": claim.mappings, "resourceClaimName": name});
    let patch = json!({"status": {"extendedResourceClaimStatus": status}});
    let api: Api<Pod> = Api::namespaced(client.clone(), &pod.class.namespace);
    let written = api.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    written.map(drop).map_err(|error| {
        let (key, error) = (pod.key(), error.server_message());
        ClaimWriteError(format!("update pod {key} ExtendedResourceClaimStatus: {error}"))
    })
}

/// Frees an allocated claim.
pub async fn deallocate_claim(client: &Client, claim: &ResourceClaim) -> Result<(), ClaimWriteError> {
    let freed = json!({"allocation": null, "reservedFor": null, "devices": null});
    let patch = Patch::Merge(json!({"metadata": version_of(claim), "status": freed}));
    let written = api_of(client, claim).patch_status(&claim.name_any(), &PatchParams::default(), &patch).await;
    written.map(drop).map_err(|error| ClaimWriteError(error.server_message()))
}

/// Ends the reservation of a claim for a pod.
pub async fn release_claim(client: &Client, pod: &PodInfo, claim: &ResourceClaim) -> Result<(), ClaimWriteError> {
    let patch = json!({"metadata": {"uid": claim.metadata.uid},
        "status": {"reservedFor": [{"$patch": "delete", "uid": *pod.uid}]}});
    let params = PatchParams::default();
    let written = api_of(client, claim).patch_status(&claim.name_any(), &params, &Patch::Strategic(patch)).await;
    written.map(drop).map_err(|error| ClaimWriteError(error.server_message()))
}

/// Deletes a claim for extended resources, whose finalizer the scheduler added.
pub async fn delete_extended_claim(client: &Client, claim: &ResourceClaim) -> Result<(), ClaimWriteError> {
    let (api, name) = (api_of(client, claim), claim.name_any());
    let fail = |what: &str, error: &kube::Error| {
        Err(ClaimWriteError(format!("{what} resourceclaim {}: {}", claim_key(claim), error.server_message())))
    };
    let mut current = claim.clone();
    for attempt in 1.. {
        let left = current.finalizers().iter().map(String::as_str).filter(|finalizer| *finalizer != FINALIZER);
        match patch_finalizers(&api, &current, left.collect()).await {
            Err(error) if error.is_conflict() && attempt < CONFLICT_TRIES => match api.get(&name).await {
                Ok(fresh) => current = fresh,
                Err(error) => return fail("get", &error),
            },
            Err(error) => return fail("update", &error),
            Ok(_) => break,
        }
    }
    let deleted = api.delete(&name, &DeleteParams::default()).await;
    deleted.map(drop).map_err(|error| ClaimWriteError(error.server_message()))
}
