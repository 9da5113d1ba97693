//! Roles and bindings: nobody grants what they do not have.

use authz::{Guard, escalation};

use super::Strategy;

pub struct Role;
pub struct Binding;

impl Strategy for Role {
    fn guard(&self) -> Option<&dyn Guard> {
        Some(&escalation::Roles)
    }
}

impl Strategy for Binding {
    fn guard(&self) -> Option<&dyn Guard> {
        Some(&escalation::Bindings)
    }
}
