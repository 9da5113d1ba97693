//! ValidatingAdmissionWebhook: calls all matching webhooks concurrently.

use api::{Value, status::Status};
use async_trait::async_trait;
use futures::future::join_all;

use super::{
    Configured,
    call::{Failure, decide},
};
use crate::{AdmissionAttributes, Plugin};

const FAILED_AUDIT: &str = "failed-open.validating.webhook.admission.k8s.io";

/// The ValidatingAdmissionWebhook plug-in.
pub struct Validating(pub(super) Configured);

#[async_trait]
impl Plugin for Validating {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.0.concerns(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let hooks = self.0.hooks();
        let mut asked = Vec::new();
        for hook in hooks.iter() {
            if let Some(invocation) = hook.asked(attributes, object, &self.0.authorizers).await? {
                asked.push((hook, invocation));
            }
        }
        let calls = asked.iter().enumerate().map(|(at, (hook, invocation))| async move {
            match self.0.call(hook, invocation.clone(), attributes, object, false).await {
                Ok(_) => Ok(()),
                Err(failure) => {
                    if hook.ignores_failure && matches!(failure, Failure::Calling(_)) {
                        let key = format!("{FAILED_AUDIT}/round_0_index_{at}");
                        attributes.notes().annotate_audit(key, hook.name.as_str());
                    }
                    decide(hook, failure)
                }
            }
        });
        join_all(calls).await.into_iter().collect()
    }
}
