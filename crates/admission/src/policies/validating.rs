//! ValidatingAdmissionPolicy: evaluates all matching policies and reports the first denial.

use std::sync::Arc;

use api::{Value, status::Status};
use async_trait::async_trait;
use authz::Authorizers;
use expressions::admission::{Annotation, Decision, Judgement, ValidatingPolicy};
use serde::Serialize;
use serde_json::json;

use super::{
    is_exempt, params,
    source::{Binding, Hook, Source},
};
use crate::{
    AdmissionAttributes, Plugin,
    deferred_authorizer::DeferredAuthorizer,
    matching::Invocation,
    versioned_attributes::{VersionedAttributes, namespace_object},
};

const FAILURE_AUDIT: &str = "validation.policy.admission.k8s.io/validation_failure";
/// Maximum length of an audit annotation value.
const LONGEST_ANNOTATION: usize = 10 * 1024;

/// The ValidatingAdmissionPolicy plug-in.
pub struct Validating {
    pub(super) policies: Source<ValidatingPolicy>,
    pub(super) authorizers: Arc<Authorizers>,
}

/// The evaluation of all policies for one request.
struct Case<'a, 'b> {
    attributes: &'b AdmissionAttributes<'a>,
    object: &'b Value,
    authorizers: &'b Authorizers,
    asking: Arc<DeferredAuthorizer>,
    namespace: Option<Value>,
    /// Message and reason of the first denial.
    refused: Option<(String, String)>,
}

/// The audit annotation of a failed validation; fields in upstream's order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure<'a> {
    message: &'a str,
    policy: &'a str,
    binding: &'a str,
    expression_index: usize,
    validation_actions: &'a [String],
}

/// Audit annotation values by key, without duplicates.
type Annotations = Vec<(String, Vec<String>)>;

#[async_trait]
impl Plugin for Validating {
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool {
        !self.policies.is_empty() && !is_exempt(attributes)
    }

    async fn validate(&self, attributes: &AdmissionAttributes<'_>, object: &Value) -> Result<(), Status> {
        let authorizers = &*self.authorizers;
        let asking = Arc::new(DeferredAuthorizer::default());
        let mut case = Case { attributes, object, authorizers, asking, namespace: None, refused: None };
        for hook in self.policies.hooks().iter() {
            case.hook(hook).await?;
        }
        case.refused.map_or(Ok(()), |(message, reason)| Err(refusal(attributes, object, &message, &reason)))
    }
}

impl Case<'_, '_> {
    async fn hook(&mut self, hook: &Hook<ValidatingPolicy>) -> Result<(), Status> {
        let policy = &hook.policy;
        let invocation = match policy.constraints.about(self.attributes, self.object).await {
            Ok(Some(invocation)) => invocation,
            Ok(None) => return Ok(()),
            Err(status) => return self.misconfigured(hook, None, &status.message),
        };
        let resource = match policy.params.as_ref().map(|kind| kind.resource(self.attributes)).transpose() {
            Ok(resource) => resource,
            Err(why) => return self.misconfigured(hook, None, &why),
        };
        let mut annotations = Annotations::new();
        for binding in &hook.bindings {
            match binding.is_about(self.attributes, self.object).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(status) => {
                    self.misconfigured(hook, Some(binding), &status.message)?;
                    continue;
                }
            }
            match params::collect(resource.as_deref(), binding.params.as_ref(), self.attributes).await {
                Ok(params) => self.judge(hook, binding, invocation.clone(), &params, &mut annotations).await?,
                Err(why) => self.misconfigured(hook, Some(binding), &why)?,
            }
        }
        for (key, values) in annotations {
            self.attributes.notes().annotate_audit(format!("{}/{key}", policy.name), values.join(", "));
        }
        Ok(())
    }

    async fn judge(
        &mut self,
        hook: &Hook<ValidatingPolicy>,
        binding: &Binding,
        invocation: Invocation,
        params: &[Value],
        annotations: &mut Annotations,
    ) -> Result<(), Status> {
        if params.is_empty() {
            return Ok(());
        }
        let namespace = match &self.namespace {
            Some(namespace) => namespace.clone(),
            None => self.namespace.insert(namespace_object(self.attributes).await?).clone(),
        };
        let shown = VersionedAttributes::new(self.attributes, invocation, self.object, &namespace).await?;
        for params in params {
            let input = shown.input(params, &self.asking);
            let judge = || hook.policy.compiled.judge(&input);
            let judgement = self.asking.evaluate(self.authorizers, self.attributes.user(), judge).await;
            self.act(&hook.policy.name, binding, judgement, annotations);
        }
        Ok(())
    }

    /// Applies the binding's `validationActions` to the policy's decisions.
    fn act(&mut self, policy: &str, binding: &Binding, judgement: Judgement, annotations: &mut Annotations) {
        for (at, decision) in judgement.decisions.into_iter().enumerate() {
            let Decision::Deny { message, reason } = decision else { continue };
            for action in &binding.actions {
                match action.as_str() {
                    "Deny" => self.refuse(policy, Some(&binding.name), &message, &reason),
                    "Warn" => self.attributes.notes().add_warning(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{}': {message}",
                        binding.name
                    )),
                    _ => self.note(binding, at, &message),
                }
            }
        }
        for annotation in judgement.annotations {
            match annotation {
                Annotation::Failed(why) => self.refuse(policy, Some(&binding.name), &why, ""),
                Annotation::Publish(key, value) => add(annotations, key, shortened(value)),
            }
        }
    }

    fn note(&self, binding: &Binding, at: usize, message: &str) {
        let failure = Failure {
            message,
            policy: &binding.policy,
            binding: &binding.name,
            expression_index: at,
            validation_actions: &binding.actions,
        };
        let failure = serde_json::to_string(&[failure]).unwrap_or_default();
        self.attributes.notes().annotate_audit(FAILURE_AUDIT, failure);
    }

    fn misconfigured(
        &mut self,
        hook: &Hook<ValidatingPolicy>,
        binding: Option<&Binding>,
        why: &str,
    ) -> Result<(), Status> {
        if !hook.policy.ignores_failure {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let message = format!("failed to configure {what}: {why}");
            self.refuse(&hook.policy.name, binding.map(|binding| binding.name.as_str()), &message, "");
        }
        Ok(())
    }

    /// Records a denial; only the first one is reported.
    fn refuse(&mut self, policy: &str, binding: Option<&str>, why: &str, reason: &str) {
        let with = binding.map_or(String::new(), |binding| format!(" with binding '{binding}'"));
        self.refused.get_or_insert_with(|| {
            (format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {why}"), reason.to_owned())
        });
    }
}

fn add(annotations: &mut Annotations, key: String, value: String) {
    match annotations.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) if values.contains(&value) => {}
        Some((_, values)) => values.push(value),
        None => annotations.push((key, vec![value])),
    }
}

fn shortened(mut value: String) -> String {
    if value.len() > LONGEST_ANNOTATION {
        let end = (0..=LONGEST_ANNOTATION).rev().find(|at| value.is_char_boundary(*at)).unwrap_or(0);
        value.truncate(end);
    }
    value
}

fn refusal(attributes: &AdmissionAttributes<'_>, object: &Value, message: &str, reason: &str) -> Status {
    let mut status = attributes.forbidden(object, message);
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
