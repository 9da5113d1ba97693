//! ValidatingAdmissionWebhook: calls all matching webhooks concurrently.

use api::{Value, status::Status};
use async_trait::async_trait;
use futures::future::join_all;

use super::{
    WebhookSource,
    dispatcher::{WebhookCallError, apply_failure_policy},
};
use crate::{AdmissionAttributes, Plugin};

const FAILED_AUDIT: &str = "failed-open.validating.webhook.admission.k8s.io";

/// The ValidatingAdmissionWebhook plug-in.
pub struct ValidatingWebhook(pub(super) WebhookSource);

#[async_trait]
impl Plugin for ValidatingWebhook {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        self.0.handles(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let webhooks = self.0.webhooks();
        let mut matched = Vec::new();
        for webhook in webhooks.iter() {
            if let Some(invocation) = webhook.match_request(attributes, object, &self.0.authorizers).await? {
                matched.push((webhook, invocation));
            }
        }
        let calls = matched.iter().enumerate().map(|(at, (webhook, invocation))| async move {
            match self.0.call_webhook(webhook, invocation.clone(), attributes, object, false).await {
                Ok(_) => Ok(()),
                Err(error) => {
                    if webhook.ignores_failure && matches!(error, WebhookCallError::Calling(_)) {
                        let key = format!("{FAILED_AUDIT}/round_0_index_{at}");
                        attributes.warnings().annotate_audit(key, webhook.name.as_str());
                    }
                    apply_failure_policy(webhook, error)
                }
            }
        });
        join_all(calls).await.into_iter().collect()
    }
}
