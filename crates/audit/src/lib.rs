//! Auditing: each request that the policy selects produces an event per stage.
//!
//! The pipeline creates an [`AuditContext`] after authentication and completes it with the response. In between, stages
//! add to it with [`annotate`] in the request's task. Without a policy there is no context and no cost.

mod audit_context;
mod backend;
mod backend_config;
mod event;
mod log;
mod options;
mod policy;
mod response;
mod truncate;
mod webhook;

use std::sync::Arc;

use api::{Value, status::Status};
pub use apiserver_core::audit::annotate;
use apiserver_core::{attributes::Attributes, audit::AuditAnnotations};
pub use audit_context::AuditContext;
use backend::AuditBackend;
pub use backend_config::{BackendMode, BatchConfig};
pub use event::{AuditedRequest, source_ips};
use futures::future::join_all;
pub use log::LogBackendConfig;
pub use options::AuditOptions;
pub use policy::{Level, Policy, PolicyError, Stage};
pub use response::{record_panic, record_rejection, record_response};
pub use truncate::TruncateConfig;
pub use webhook::WebhookBackendConfig;

tokio::task_local! {
    static AUDIT_CONTEXT: Arc<AuditContext>;
}

/// Calls `visit` with the audit context of the current request, if it is audited.
pub fn with_audit_context(visit: impl FnOnce(&AuditContext)) {
    // Outside of the scope the request is not audited.
    let _ = AUDIT_CONTEXT.try_with(|context| visit(context));
}

/// Runs the handler of an audited request.
pub async fn run_with_audit_context<F: Future>(context: Arc<AuditContext>, work: F) -> F::Output {
    let annotations: Arc<dyn AuditAnnotations> = context.clone();
    AUDIT_CONTEXT.scope(context, apiserver_core::audit::with_annotations(annotations, work)).await
}

/// Applies the audit policy and sends events to the backends.
pub struct Auditor {
    policy: Policy,
    backends: Vec<AuditBackend>,
}

impl Auditor {
    /// Builds the auditor; `None` without a policy or backend.
    pub fn new(settings: &AuditOptions) -> Option<Arc<Self>> {
        let policy = settings.policy.clone()?;
        let log = settings.log.as_ref().map(|log| AuditBackend::with_log(log.clone()));
        let webhook = settings.webhook.as_ref().map(|webhook| AuditBackend::with_webhook(webhook.clone()));
        let backends: Vec<AuditBackend> = log.into_iter().chain(webhook).collect();
        (!backends.is_empty()).then(|| Arc::new(Self { policy, backends }))
    }

    /// Creates the audit context of a request, if the policy selects it.
    pub fn begin_audit(
        self: &Arc<Self>,
        request: &AuditedRequest<'_>,
        attributes: &Attributes<'_>,
    ) -> Option<Arc<AuditContext>> {
        let request_config = self.policy.evaluate_policy_rule(attributes);
        (request_config.level > Level::None)
            .then(|| Arc::new(AuditContext::new(self.clone(), request_config, request, attributes)))
    }

    /// Sends an event to all backends. A strict backend that fails at RequestReceived rejects the request.
    async fn process_event(&self, stage: Stage, event: Value) -> Result<(), Status> {
        let event = Arc::new(event);
        let results = join_all(self.backends.iter().map(|backend| backend.process_event(&event))).await;
        for (backend, result) in self.backends.iter().zip(results) {
            if let Err(error) = result {
                tracing::error!(%error, "audit: backend failed, the event is lost");
                if backend.is_strict() && stage == Stage::RequestReceived {
                    return Err(Status::internal_error("unable to audit the request"));
                }
            }
        }
        Ok(())
    }

    /// Waits until all events are written.
    pub async fn flush(&self) {
        join_all(self.backends.iter().map(AuditBackend::flush)).await;
    }
}
