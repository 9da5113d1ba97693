//! The authorization modes of a server (`--authorization-mode`).

use crate::{Policies, Webhook};

/// Authorization configuration.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// The modes, in the order in which they are called.
    pub modes: Vec<Mode>,
}

/// An authorization mode.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Allows all requests.
    AlwaysAllow,
    /// Allows no request.
    AlwaysDeny,
    /// Role-based access control.
    Rbac,
    /// Authorizes kubelets for the objects of their node.
    Node,
    /// Attribute-based access control with a policy file.
    Abac(Policies),
    /// Asks a webhook.
    Webhook(Webhook),
}

impl Mode {
    /// The name of the mode in `--authorization-mode`.
    pub fn kind(&self) -> &'static str {
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

impl Default for Authorization {
    fn default() -> Self {
        Self { modes: vec![Mode::AlwaysAllow] }
    }
}
