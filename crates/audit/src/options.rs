//! Audit configuration.

use super::{log::LogBackendConfig, policy::Policy, webhook::WebhookBackendConfig};

/// The audit policy and backends.
#[derive(Clone, Debug, Default)]
pub struct AuditOptions {
    /// The policy; `None` disables auditing.
    pub policy: Option<Policy>,
    /// Log backend.
    pub log: Option<LogBackendConfig>,
    /// Webhook backend.
    pub webhook: Option<WebhookBackendConfig>,
}
