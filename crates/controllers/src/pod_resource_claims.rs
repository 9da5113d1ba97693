//! The ResourceClaims of pods.

use k8s_openapi::api::{core::v1::PodResourceClaim, resource::v1::ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;

use crate::pod_view::PodView;

/// The claim of a pod's entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodClaim<'a> {
    /// The user's claim of that name.
    Named(&'a str),
    /// A claim that was generated for the pod.
    Generated(&'a str),
    /// The template needs no claim.
    NotNeeded,
    /// The claim is not generated yet.
    Missing,
}

impl<'a> PodClaim<'a> {
    /// Returns the claim of an entry of `pod.spec.resourceClaims`.
    pub(crate) fn from_pod(pod: &'a PodView, entry: &'a PodResourceClaim) -> Self {
        if let Some(name) = &entry.resource_claim_name {
            return PodClaim::Named(name);
        }
        let mut statuses = pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        match statuses.find(|status| status.name == entry.name) {
            Some(status) => status.resource_claim_name.as_deref().map_or(PodClaim::NotNeeded, PodClaim::Generated),
            None => PodClaim::Missing,
        }
    }

    /// The claim's name, if there is one.
    pub(crate) fn name(&self) -> Option<&'a str> {
        match self {
            PodClaim::Named(name) | PodClaim::Generated(name) => Some(name),
            PodClaim::NotNeeded | PodClaim::Missing => None,
        }
    }
}

/// The entries of `pod.spec.resourceClaims`.
pub(crate) fn pod_entries(pod: &PodView) -> &[PodResourceClaim] {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default()
}

/// Returns the pod that owns a generated claim.
pub(crate) fn owning_pod(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let is_pod =
        |owner: &&OwnerReference| owner.controller == Some(true) && owner.api_version == "v1" && owner.kind == "Pod";
    claim.owner_references().iter().find(is_pod)
}

/// A claim was not generated for the pod that refers to it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("ResourceClaim {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
pub(crate) struct NotOwnedError {
    namespace: String,
    claim: String,
    pod: String,
}

/// Checks that a generated claim belongs to the pod.
pub(crate) fn check_owner(pod: &PodView, claim: &ResourceClaim) -> Result<(), NotOwnedError> {
    let owner = owning_pod(claim).map(|owner| &owner.uid);
    if owner.is_some() && owner == pod.metadata.uid.as_ref() {
        return Ok(());
    }
    let namespace = pod.namespace().unwrap_or_default();
    Err(NotOwnedError { namespace, claim: claim.name_any(), pod: pod.name_any() })
}
