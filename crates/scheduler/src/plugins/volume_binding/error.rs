//! Reasons why volumes cannot be bound, in upstream's words.

use client::ApiErrorExt;

/// A fault in a pod's claims, their classes or their volumes.
#[derive(Debug, thiserror::Error)]
pub enum VolumeBindingError {
    /// A claim that a pod names is not there.
    #[error("{0}")]
    ClaimNotFound(String),
    /// The claim of an ephemeral volume is not created yet.
    #[error("waiting for ephemeral volume controller to create the persistentvolumeclaim {0:?}")]
    EphemeralClaimNotFound(String),
    /// A claim was not generated for the pod that refers to it.
    #[error("PVC {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwned { claim: String, pod: String },
    /// A claim is bound to a volume that is gone.
    #[error("persistentvolumeclaim {claim:?} bound to non-existent persistentvolume {volume:?}")]
    ClaimLost { claim: String, volume: String },
    /// A claim is being deleted.
    #[error("persistentvolumeclaim {0:?} is being deleted")]
    ClaimDeleted(String),
    /// A claim of the pod is not in the cache.
    #[error("error getting PVC {0:?}: persistentvolumeclaims {0:?} not found")]
    ClaimUnknown(String),
    /// A claim that is to be provisioned names no class.
    #[error("no class for claim {0:?}")]
    NoClass(String),
    /// The class of a claim is not there.
    #[error("failed to find storage class {0:?}")]
    ClassNotFound(String),
    /// A class has no binding mode.
    #[error("VolumeBindingMode not set for StorageClass {0:?}")]
    NoBindingMode(String),
    /// A write was refused or not answered.
    #[error("{}", .0.server_message())]
    Write(#[source] kube::Error),
    /// The binding failed while the scheduler waited for it.
    #[error("binding volumes: {0}")]
    Binding(#[from] BindingFailure),
}

/// A failure while the controllers complete a binding.
#[derive(Debug, thiserror::Error)]
pub enum BindingFailure {
    /// The controllers took too long.
    #[error("context deadline exceeded")]
    Timeout,
    /// The chosen node is gone.
    #[error("failed to get node {0:?}: node {0:?} not found")]
    NodeNotFound(String),
    /// The pod was deleted.
    #[error("pod does not exist any more: pod {0:?} not found")]
    PodNotFound(String),
    /// A volume cannot be reached from the chosen node.
    #[error("pv {volume:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms")]
    VolumeUnreachable { volume: String, node: String },
    /// A chosen volume is gone.
    #[error("failed to check binding: persistentvolumes {0:?} not found")]
    VolumeNotFound(String),
    /// A claim is gone.
    #[error("{during}: persistentvolumeclaims {claim:?} not found")]
    ClaimNotFound { during: &'static str, claim: String },
    /// The volume was taken from the claim.
    #[error("ClaimRef got reset for pv {0:?}")]
    ClaimRefReset(String),
    /// The claim names no node any more.
    #[error("selectedNode annotation reset for PVC {0:?}")]
    SelectedNodeReset(String),
    /// The provisioner asked for another node.
    #[error("provisioning failed for PVC {0:?}")]
    Provisioning(String),
}
