//! Resolves a configured webhook to its address.

use apiserver_core::webhook::{WebhookClient, resolve_webhook};

use super::hook::Hook;
use crate::AdmissionAttributes;

/// Resolves the address of a webhook.
pub async fn reach(attributes: &AdmissionAttributes<'_>, hook: &Hook) -> Result<WebhookClient, String> {
    let tls = hook.tls.clone().map_err(|why| format!("unable to load root certificates: {why}"))?;
    let reached = resolve_webhook(attributes.registry.service_resolver(), &hook.place, tls, hook.timeout).await;
    reached.map_err(|why| format!("failed to call webhook: {why}"))
}
