//! Failures of a StatefulSet sync.

use client::ApiErrorExt;

/// A StatefulSet could not be synced. The messages are those of upstream's events.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatefulSetSyncError {
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    #[error("could not update claim {name} for delete policy ownerRefs: {}", .source.server_message())]
    ClaimOwners { name: String, source: kube::Error },
    #[error("{}", join_failures(.0))]
    Claims(Vec<String>),
    #[error("the pod template cannot be encoded: {0}")]
    Template(#[from] serde_json::Error),
    #[error("the data of ControllerRevision {0:?} contains no pod template")]
    Revision(String),
    #[error("the StatefulSet has no spec")]
    NoSpec,
}

impl StatefulSetSyncError {
    /// Whether an object changed since it was read.
    pub(super) fn is_conflict(&self) -> bool {
        match self {
            Self::Api(error) | Self::ClaimOwners { source: error, .. } => error.is_conflict(),
            _ => false,
        }
    }
}

/// Joins messages as upstream's aggregates do.
fn join_failures(failures: &[String]) -> String {
    match failures {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_failures_are_listed() {
        let check = |failures: &[&str], expected: &str| {
            let failures = failures.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(StatefulSetSyncError::Claims(failures).to_string(), expected);
        };
        check(&["pvc a is being deleted"], "pvc a is being deleted");
        check(&["a", "b"], "[a, b]");
    }
}
