//! ValidatingAdmissionPolicy: evaluates all matching policies and reports the first denial.

use std::{fmt::Display, sync::Arc};

use api::{Value, status::Status};
use async_trait::async_trait;
use authz::Authorizers;
use expressions::admission::{AuditAnnotation, PolicyDecision, ValidateResult, ValidatingPolicy};
use serde::Serialize;
use serde_json::json;

use super::{
    is_exempt,
    policy_source::{PolicyBinding, PolicyHook, PolicySource},
};
use crate::{
    AdmissionAttributes, Plugin,
    deferred_authorizer::DeferredAuthorizer,
    matching::Invocation,
    versioned_attributes::{VersionedAttributes, namespace_object},
};

const FAILURE_AUDIT: &str = "validation.policy.admission.k8s.io/validation_failure";
/// Maximum length of an audit annotation value.
const MAX_ANNOTATION_LENGTH: usize = 10 * 1024;

/// The ValidatingAdmissionPolicy plug-in.
pub struct ValidatingAdmissionPolicy {
    pub(super) policies: PolicySource<ValidatingPolicy>,
    pub(super) authorizers: Arc<Authorizers>,
}

/// The evaluation of all policies for one request.
struct ValidatingDispatcher<'a, 'b> {
    attributes: &'b AdmissionAttributes<'a>,
    object: &'b Value,
    authorizers: &'b Authorizers,
    authorizer: Arc<DeferredAuthorizer>,
    namespace: Option<Value>,
    /// Message and reason of the first denial.
    denied: Option<(String, String)>,
}

/// The audit annotation of a failed validation; fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationFailureValue<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// Audit annotation values by key, without duplicates.
type AuditAnnotations = Vec<(String, Vec<String>)>;

#[async_trait]
impl Plugin for ValidatingAdmissionPolicy {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.policies.is_empty() && !is_exempt(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let authorizers = &*self.authorizers;
        let authorizer = Arc::new(DeferredAuthorizer::default());
        let mut dispatcher =
            ValidatingDispatcher { attributes, object, authorizers, authorizer, namespace: None, denied: None };
        for hook in self.policies.hooks().iter() {
            dispatcher.dispatch_policy(hook).await?;
        }
        dispatcher
            .denied
            .map_or(Ok(()), |(message, reason)| Err(new_denied_status(attributes, object, &message, &reason)))
    }
}

impl ValidatingDispatcher<'_, '_> {
    async fn dispatch_policy(&mut self, hook: &PolicyHook<ValidatingPolicy>) -> Result<(), Status> {
        let (invocation, bindings) = match hook.match_request(self.attributes, self.object).await {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.record_configuration_error(hook, None, why);
                return Ok(());
            }
        };
        let mut annotations = AuditAnnotations::new();
        for (binding, params) in bindings {
            match params {
                Ok(params) => {
                    self.evaluate_binding(hook, binding, invocation.clone(), &params, &mut annotations).await?
                }
                Err(why) => self.record_configuration_error(hook, Some(binding), why),
            }
        }
        for (key, values) in annotations {
            self.attributes.warnings().annotate_audit(format!("{}/{key}", hook.policy.name), values.join(", "));
        }
        Ok(())
    }

    async fn evaluate_binding(
        &mut self,
        hook: &PolicyHook<ValidatingPolicy>,
        binding: &PolicyBinding,
        invocation: Invocation,
        params: &[Value],
        annotations: &mut AuditAnnotations,
    ) -> Result<(), Status> {
        if params.is_empty() {
            return Ok(());
        }
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => self.namespace.insert(namespace_object(self.attributes).await?).clone(),
        };
        let versioned = VersionedAttributes::new(self.attributes, invocation, self.object, &namespace).await?;
        for params in params {
            let input = versioned.evaluation_input(params, &self.authorizer);
            let evaluate = || hook.policy.compiled.validate_request(&input);
            let judgement = self.authorizer.evaluate(self.authorizers, self.attributes.user(), evaluate).await;
            self.apply_validation_actions(&hook.policy.name, binding, judgement, annotations);
        }
        Ok(())
    }

    /// Applies the binding's `validationActions` to the policy's decisions.
    fn apply_validation_actions(
        &mut self,
        policy: &str,
        binding: &PolicyBinding,
        judgement: ValidateResult,
        annotations: &mut AuditAnnotations,
    ) {
        for (at, decision) in judgement.decisions.into_iter().enumerate() {
            let PolicyDecision::Deny { message, reason } = decision else { continue };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => self.record_denial(policy, Some(&binding.name), &message, &reason),
                    "Warn" => self.attributes.warnings().add_warning(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                        binding.name
                    )),
                    _ => self.annotate_failure(binding, at, &message),
                }
            }
        }
        for annotation in judgement.annotations {
            match annotation {
                AuditAnnotation::Failed(why) => self.record_denial(policy, Some(&binding.name), &why, ""),
                AuditAnnotation::Publish(key, value) => add_annotation(annotations, key, truncate_annotation(value)),
            }
        }
    }

    fn annotate_failure(&self, binding: &PolicyBinding, at: usize, message: &str) {
        let failure = ValidationFailureValue {
            message,
            policy: &binding.policy,
            binding: &binding.name,
            expression_index: at,
            validation_actions: &binding.actions,
        };
        let failure = serde_json::to_string(&[failure]).unwrap_or_default();
        self.attributes.warnings().annotate_audit(FAILURE_AUDIT, failure);
    }

    fn record_configuration_error(
        &mut self,
        hook: &PolicyHook<ValidatingPolicy>,
        binding: Option<&PolicyBinding>,
        why: impl Display,
    ) {
        if !hook.policy.ignores_failure {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let message = format!("failed to configure {what}: {why}");
            self.record_denial(&hook.policy.name, binding.map(|binding| binding.name.as_str()), &message, "");
        }
    }

    /// Records a denial; only the first one is reported.
    fn record_denial(&mut self, policy: &str, binding: Option<&str>, why: &str, reason: &str) {
        let with = binding.map_or(String::new(), |binding| format!(" with binding '{binding}'"));
        self.denied.get_or_insert_with(|| {
            (format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {why}"), reason.to_owned())
        });
    }
}

fn add_annotation(annotations: &mut AuditAnnotations, key: String, value: String) {
    match annotations.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => annotations.push((key, vec![value])),
    }
}

fn truncate_annotation(mut value: String) -> String {
    if value.len() > MAX_ANNOTATION_LENGTH {
        let end = (0..=MAX_ANNOTATION_LENGTH).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
        value.truncate(end);
    }
    value
}

fn new_denied_status(attributes: &AdmissionAttributes<'_>, object: &Value, message: &str, reason: &str) -> Status {
    let mut status = attributes.new_forbidden(object, message);
    let (code, reason) = match reason {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    (status.code, status.reason) = (code, reason);
    if let Some(details) = &mut status.details {
        details["causes"] = json!([{"message": message}]);
    }
    status
}
