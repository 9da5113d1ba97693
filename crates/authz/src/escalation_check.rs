//! Checks of privilege escalation, which the registry runs before it writes roles and bindings.

use api::{Value, status::Status};
use apiserver_core::request::ResourceRequest;
use async_trait::async_trait;

use crate::Authorizers;

/// Whether somebody may write what an object says, beyond writing it. Asked once the object is complete, before it is
/// prepared and validated.
#[async_trait]
pub trait EscalationCheck: Sync {
    /// The answer to a write that must not happen.
    async fn check_escalation(&self, guarded: EscalationAttributes<'_>) -> Result<(), Status>;
}

/// A write that a guard looks at.
#[derive(Clone, Copy)]
pub struct EscalationAttributes<'a> {
    /// Who knows what the writer may do.
    pub authorizers: &'a Authorizers,
    /// The request.
    pub target: &'a ResourceRequest,
    /// The object that would be written.
    pub object: &'a Value,
    /// What is there; `None`: nothing.
    pub current: Option<&'a Value>,
}
