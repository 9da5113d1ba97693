//! The authorization modes of a server (`--authorization-mode`).

use crate::{AbacPolicies, WebhookConfig};

/// Authorization configuration.
#[derive(Clone, Debug)]
pub struct AuthorizationOptions {
    /// The modes, in the order in which they are called.
    pub modes: Vec<AuthorizationMode>,
}

/// An authorization mode.
#[derive(Clone, Debug)]
pub enum AuthorizationMode {
    /// Allows all requests.
    AlwaysAllow,
    /// Allows no request.
    AlwaysDeny,
    /// Role-based access control.
    Rbac,
    /// Authorizes kubelets for the objects of their node.
    Node,
    /// Attribute-based access control with a policy file.
    Abac(AbacPolicies),
    /// Asks a webhook.
    Webhook(WebhookConfig),
}

impl AuthorizationMode {
    /// The name of the mode in `--authorization-mode`.
    pub fn mode_name(&self) -> &'static str {
        match self {
            Self::AlwaysAllow => "AlwaysAllow",
            Self::AlwaysDeny => "AlwaysDeny",
            Self::Rbac => "RBAC",
            Self::Node => "Node",
            Self::Abac(_) => "ABAC",
            Self::Webhook(_) => "Webhook",
        }
    }
}

impl Default for AuthorizationOptions {
    fn default() -> Self {
        Self { modes: vec![AuthorizationMode::AlwaysAllow] }
    }
}
