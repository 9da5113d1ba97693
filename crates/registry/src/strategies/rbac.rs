//! RBAC roles and bindings: escalation checks.

use authz::{EscalationCheck, escalation};

use super::Strategy;

/// The strategy of roles and cluster roles.
pub struct RoleStrategy;
/// The strategy of role bindings and cluster role bindings.
pub struct RoleBindingStrategy;

impl Strategy for RoleStrategy {
    fn escalation_check(&self) -> Option<&dyn EscalationCheck> {
        Some(&escalation::RoleEscalationCheck)
    }
}

impl Strategy for RoleBindingStrategy {
    fn escalation_check(&self) -> Option<&dyn EscalationCheck> {
        Some(&escalation::BindingEscalationCheck)
    }
}
