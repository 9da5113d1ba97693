//! Policies and webhooks of admission: their expressions must compile.

use api::{Value, validate::FieldError};
use expressions::admission::faults;

use super::Strategy;

/// Policies that validate.
pub struct ValidatingPolicy;
/// Policies that mutate.
pub struct MutatingPolicy;
/// Configurations of webhooks, of both kinds.
pub struct Webhooks;

impl Strategy for ValidatingPolicy {
    fn check(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        faults::merge(errors, faults::of_validating(object, current));
    }
}

impl Strategy for MutatingPolicy {
    fn check(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        faults::merge(errors, faults::of_mutating(object, current));
    }
}

impl Strategy for Webhooks {
    fn check(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        faults::merge(errors, faults::of_webhooks(object, current));
    }
}
