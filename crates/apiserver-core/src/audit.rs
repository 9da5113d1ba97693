//! Audit annotations of the request that the current task serves.
//!
//! The audit stage puts an [`AuditAnnotations`] in scope; authorizers and admission plug-ins add to it with [`annotate_audit`].
//! Outside of that scope nothing is recorded and values are not computed.

use std::sync::Arc;

/// The audit event that annotations are added to.
pub trait AuditAnnotations: Send + Sync {
    /// Sets an annotation; the first value of a key wins.
    fn annotate(&self, key: &str, value: String);
}

tokio::task_local! {
    static ANNOTATIONS: Arc<dyn AuditAnnotations>;
}

/// Adds an audit annotation to the request of this task. `value` is computed only if the request is audited.
pub fn annotate(key: &str, value: impl FnOnce() -> String) {
    // Outside of the scope the request is not audited.
    let _ = ANNOTATIONS.try_with(|annotations| annotations.annotate(key, value()));
}

/// Runs `future` with its annotations added to `annotations`.
pub async fn with_annotations<F: Future>(annotations: Arc<dyn AuditAnnotations>, future: F) -> F::Output {
    ANNOTATIONS.scope(annotations, future).await
}
