//! Entries of `spec.resourceClaims`, and the claims that they stand for.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;

use crate::intern::intern;

/// An entry of `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodClaimEntry {
    /// The entry's name.
    pub name: Arc<str>,
    /// The user's claim; `None` if one is generated from a template.
    pub claim_name: Option<Arc<str>>,
}

/// The claim of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryClaim {
    /// A claim of this name; the flag tells whether it was generated for the pod.
    Named(Arc<str>, bool),
    /// The template needs no claim.
    NotNeeded,
    /// The claim is not generated yet.
    Missing,
}

impl PodClaimEntry {
    /// Reads the entries of a pod.
    pub fn of_pod(spec: &PodSpec) -> Box<[Self]> {
        let entries = spec.resource_claims.iter().flatten();
        entries
            .map(|entry| Self {
                name: intern(&entry.name),
                claim_name: entry.resource_claim_name.as_deref().map(intern),
            })
            .collect()
    }
}
