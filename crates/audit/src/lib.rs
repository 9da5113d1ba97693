//! Who did what, when: every request that the policy names leaves a chain of events, one for each stage that it reaches.
//!
//! The pipeline begins a [`AuditContext`] once it is known who asks, and closes it with the answer. In between whoever knows
//! something worth keeping adds it with [`annotate`], from anywhere in the request's task. Without a policy there is no trail,
//! and nothing of this costs anything.

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

/// Looks at the trail of the request that this task answers, if it leaves one.
pub fn with(look: impl FnOnce(&AuditContext)) {
    // No trail: nobody wants to know.
    let _ = TRAIL.try_with(|trail| look(trail));
}

/// Does the work of a request that leaves a trail.
pub async fn within<F: Future>(trail: Arc<AuditContext>, work: F) -> F::Output {
    let annotations: Arc<dyn AuditAnnotations> = trail.clone();
    TRAIL.scope(trail, apiserver_core::audit::with_annotations(annotations, work)).await
}

/// Decides what is kept, and passes it on.
pub struct Auditor {
    policy: Policy,
    outputs: Vec<Output>,
}

impl Auditor {
    /// An auditor as the settings say; `None` where nothing is audited.
    pub fn new(settings: &Audit) -> Option<Arc<Self>> {
        let policy = settings.policy.clone()?;
        let log = settings.log.as_ref().map(|log| Output::log(log.clone()));
        let webhook = settings.webhook.as_ref().map(|webhook| Output::webhook(webhook.clone()));
        let outputs: Vec<Output> = log.into_iter().chain(webhook).collect();
        (!outputs.is_empty()).then(|| Arc::new(Self { policy, outputs }))
    }

    /// Begins the trail of a request, if the policy says so.
    pub fn begin(self: &Arc<Self>, request: &Request<'_>, asked: &Attributes<'_>) -> Option<Arc<AuditContext>> {
        let ruling = self.policy.ruling(asked);
        (ruling.level > Level::None).then(|| Arc::new(AuditContext::new(self.clone(), ruling, request, asked)))
    }

    /// Passes an event on. An output that must not miss the beginning of a request fails it.
    async fn tell(&self, stage: Stage, event: Value) -> Result<(), Status> {
        let event = Arc::new(event);
        let told = join_all(self.outputs.iter().map(|output| output.take(&event))).await;
        for (output, told) in self.outputs.iter().zip(told) {
            if let Err(why) = told {
                tracing::error!(why, "an audit event is lost");
                if output.is_strict() && stage == Stage::RequestReceived {
                    return Err(Status::internal_error("unable to audit the request"));
                }
            }
        }
        Ok(())
    }

    /// Waits until everything that was told has been passed on.
    pub async fn flush(&self) {
        join_all(self.outputs.iter().map(Output::flush)).await;
    }
}
