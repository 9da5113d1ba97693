//! Admission policies and webhook configurations: their CEL expressions must compile.

use api::{Value, validate::FieldError};
use expressions::admission::validation;

use super::Strategy;

/// The strategy of validating admission policies.
pub struct ValidatingPolicyStrategy;
/// The strategy of mutating admission policies.
pub struct MutatingPolicyStrategy;
/// The strategy of validating and mutating webhook configurations.
pub struct WebhookConfigurationStrategy;

impl Strategy for ValidatingPolicyStrategy {
    fn validate_object(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        validation::merge_errors(errors, validation::validate_validating_policy(object, current));
    }
}

impl Strategy for MutatingPolicyStrategy {
    fn validate_object(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        validation::merge_errors(errors, validation::validate_mutating_policy(object, current));
    }
}

impl Strategy for WebhookConfigurationStrategy {
    fn validate_object(&self, object: &Value, current: Option<&Value>, errors: &mut Vec<FieldError>) {
        validation::merge_errors(errors, validation::validate_webhooks(object, current));
    }
}
