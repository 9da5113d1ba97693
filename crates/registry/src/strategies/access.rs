//! Roles and bindings: nobody grants what they do not have.

use authz::{EscalationCheck, escalation};

use super::Strategy;

pub struct Role;
pub struct Binding;

impl Strategy for Role {
    fn escalation_check(&self) -> Option<&dyn EscalationCheck> {
        Some(&escalation::Roles)
    }
}

impl Strategy for Binding {
    fn escalation_check(&self) -> Option<&dyn EscalationCheck> {
        Some(&escalation::Bindings)
    }
}
