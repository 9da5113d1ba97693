//! Failures of a DaemonSet sync.

use client::ApiErrorExt;

/// A DaemonSet could not be synced.
#[derive(Debug, thiserror::Error)]
pub(super) enum DaemonSetSyncError {
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    #[error("the pod template cannot be encoded: {0}")]
    Template(#[from] serde_json::Error),
    #[error("the cached collision count is stale")]
    StaleCollisionCount,
    #[error("the DaemonSet has no spec")]
    NoSpec,
}
