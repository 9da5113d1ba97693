//! The authorization modes of a server (`--authorization-mode`).

use crate::{Policies, Webhook};

/// Who decides who may do what.
#[derive(Clone, Debug)]
pub struct Authorization {
    /// Who is asked, in this order.
    pub modes: Vec<Mode>,
}

/// Somebody who decides who may do what.
#[derive(Clone, Debug)]
pub enum Mode {
    /// Everybody may do everything.
    AlwaysAllow,
    /// Nobody may do anything.
    AlwaysDeny,
    /// What roles allow to those whom bindings name.
    Rbac,
    /// What kubelets need for the pods of their nodes.
    Node,
    /// What the lines of a file allow.
    Abac(Policies),
    /// What somebody else says, who is asked over HTTP.
    Webhook(Webhook),
}

impl Mode {
    /// Upstream's name of it.
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
