//! Auditing: each request that the policy selects produces an event per stage.
//!
//! The pipeline creates an [`AuditContext`] after authentication and completes it with the response. In between, stages
//! add to it with [`annotate`] in the request's task. Without a policy there is no context and no cost.

mod answer;
mod audit_context;
mod batch;
mod event;
mod log;
mod policy;
mod settings;
mod truncate;
mod webhook;

use std::sync::Arc;

pub use answer::{complete, panicked, refuse};
use api::{Value, status::Status};
pub use apiserver_core::audit::annotate;
use apiserver_core::{attributes::Attributes, audit::AuditAnnotations};
pub use audit_context::{AuditContext, Request};
use batch::Output;
pub use event::sources;
use futures::future::join_all;
pub use log::LogSettings;
pub use policy::{Level, Policy, PolicyError, Stage};
pub use settings::{Audit, BatchSettings, Mode, Truncation};
pub use webhook::WebhookSettings;

tokio::task_local! {
    static TRAIL: Arc<AuditContext>;
}

/// Calls `look` with the audit context of the current request, if it is audited.
pub fn with(look: impl FnOnce(&AuditContext)) {
    // Outside of the scope the request is not audited.
    let _ = TRAIL.try_with(|trail| look(trail));
}

/// Runs the handler of an audited request.
pub async fn within<F: Future>(trail: Arc<AuditContext>, work: F) -> F::Output {
    let annotations: Arc<dyn AuditAnnotations> = trail.clone();
    TRAIL.scope(trail, apiserver_core::audit::with_annotations(annotations, work)).await
}

/// Applies the audit policy and sends events to the backends.
pub struct Auditor {
    policy: Policy,
    outputs: Vec<Output>,
}

impl Auditor {
    /// Builds the auditor; `None` without a policy or backend.
    pub fn new(settings: &Audit) -> Option<Arc<Self>> {
        let policy = settings.policy.clone()?;
        let log = settings.log.as_ref().map(|log| Output::log(log.clone()));
        let webhook = settings.webhook.as_ref().map(|webhook| Output::webhook(webhook.clone()));
        let outputs: Vec<Output> = log.into_iter().chain(webhook).collect();
        (!outputs.is_empty()).then(|| Arc::new(Self { policy, outputs }))
    }

    /// Creates the audit context of a request, if the policy selects it.
    pub fn begin(self: &Arc<Self>, request: &Request<'_>, asked: &Attributes<'_>) -> Option<Arc<AuditContext>> {
        let ruling = self.policy.ruling(asked);
        (ruling.level > Level::None).then(|| Arc::new(AuditContext::new(self.clone(), ruling, request, asked)))
    }

    /// Sends an event to all backends. A strict backend that fails at RequestReceived rejects the request.
    async fn tell(&self, stage: Stage, event: Value) -> Result<(), Status> {
        let event = Arc::new(event);
        let told = join_all(self.outputs.iter().map(|output| output.take(&event))).await;
        for (output, told) in self.outputs.iter().zip(told) {
            if let Err(why) = told {
                tracing::error!(error = why, "audit: backend failed, the event is lost");
                if output.is_strict() && stage == Stage::RequestReceived {
                    return Err(Status::internal_error("unable to audit the request"));
                }
            }
        }
        Ok(())
    }

    /// Waits until all events are written.
    pub async fn flush(&self) {
        join_all(self.outputs.iter().map(Output::flush)).await;
    }
}
