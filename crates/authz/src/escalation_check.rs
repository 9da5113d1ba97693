//! Checks of privilege escalation, which the registry runs before it writes roles and bindings.

use api::{Value, status::Status};
use apiserver_core::request::ResourceRequest;
use async_trait::async_trait;

use crate::Authorizers;

/// Checks a write beyond its authorization. Runs once the object is complete, before it is prepared and validated.
#[async_trait]
pub trait EscalationCheck: Sync {
    /// Returns an error if the write must not happen.
    async fn check_escalation(&self, attributes: EscalationAttributes<'_>) -> Result<(), Status>;
}

/// The attributes of a write that is checked.
#[derive(Clone, Copy)]
pub struct EscalationAttributes<'a> {
    /// The authorizers.
    pub authorizers: &'a Authorizers,
    /// The request.
    pub target: &'a ResourceRequest,
    /// The object to be written.
    pub object: &'a Value,
    /// The current object; `None` for creates.
    pub current: Option<&'a Value>,
}
