//! Resolves a webhook of a configuration to its address.

use apiserver_core::webhook::{Reached, reach_place};

use super::hook::Hook;
use crate::AdmissionAttributes;

/// Finds out where a webhook is.
pub async fn reach(attributes: &AdmissionAttributes<'_>, hook: &Hook) -> Result<Reached, String> {
    let tls = hook.tls.clone().map_err(|why| format!("unable to load root certificates: {why}"))?;
    let reached = reach_place(attributes.registry.services(), &hook.place, tls, hook.timeout).await;
    reached.map_err(|why| format!("failed to call webhook: {why}"))
}
