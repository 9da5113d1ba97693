//! Evaluates `ValidatingAdmissionPolicy` validations and audit annotations.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};

use super::{
    compiler::{ExpressionCompiler, OptionalVars},
    conditions::{MatchConditions, MatchResult},
    scope::{AdmissionInput, BoundVariables, EvaluationScope, OverCostBudget, POLICY_COST_BUDGET},
};
use crate::compile::{CompileError, CompiledExpr, EvaluationError};

/// Maximum length of a message from `messageExpression`, in bytes.
const MAX_MESSAGE_LENGTH: usize = 5 * 1024;

/// A compiled `ValidatingAdmissionPolicy`.
#[derive(Debug)]
pub struct ValidatingPolicy {
    ignores_failure: bool,
    composition: Composition,
    conditions: MatchConditions,
    validations: Vec<PolicyValidation>,
    annotations: Vec<(String, String, Result<CompiledExpr, CompileError>)>,
}

#[derive(Debug)]
struct PolicyValidation {
    source: String,
    expression: Result<CompiledExpr, CompileError>,
    message: String,
    message_expression: Option<Result<CompiledExpr, CompileError>>,
    reason: String,
}

/// Result of evaluating a policy on a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ValidateResult {
    /// The decision of each validation.
    pub decisions: Vec<PolicyDecision>,
    /// The audit annotations.
    pub annotations: Vec<AuditAnnotation>,
}

/// The decision of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision {
    /// The validation passes, or its failure is ignored by `failurePolicy`.
    Admit,
    /// The validation fails.
    Deny {
        /// The denial message.
        message: String,
        /// The status reason; empty if the evaluation failed.
        reason: String,
    },
}

/// An audit annotation.
#[derive(Debug, PartialEq, Eq)]
pub enum AuditAnnotation {
    /// A key and its value.
    Publish(String, String),
    /// The error of an annotation that could not be evaluated.
    Failed(String),
}

impl ValidatingPolicy {
    /// Compiles a policy. Compile errors are reported when it is evaluated.
    pub fn compile(policy: &Json) -> Self {
        let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
        let uses = OptionalVars { params, authorizer: true, patches: false };
        let plain = OptionalVars { params, ..OptionalVars::default() };
        let mut compiler = ExpressionCompiler::with_variables();
        let composition = compiler.compile_variables(policy_variables(policy), uses);
        let conditions = MatchConditions::compile(&compiler, meta::list_at(policy, &["spec", "matchConditions"]), uses);
        let validation = |validation: &Json| {
            let text = |field: &str| meta::string_at(validation, &[field]);
            let message = text("messageExpression");
            PolicyValidation {
                source: text("expression").to_owned(),
                expression: compiler.compile(text("expression"), uses, &[Type::Bool]),
                message: text("message").to_owned(),
                message_expression: (!message.is_empty()).then(|| compiler.compile(message, plain, &[Type::String])),
                reason: match text("reason") {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                },
            }
        };
        let annotation = |annotation: &Json| {
            let (key, source) =
                (meta::string_at(annotation, &["key"]), meta::string_at(annotation, &["valueExpression"]));
            let compiled = compiler.compile(source, uses, &[Type::String, Type::Null]);
            (key.to_owned(), source.to_owned(), compiled)
        };
        Self {
            ignores_failure: meta::string_at(policy, &["spec", "failurePolicy"]) == "Ignore",
            conditions,
            validations: meta::list_at(policy, &["spec", "validations"]).iter().map(validation).collect(),
            annotations: meta::list_at(policy, &["spec", "auditAnnotations"]).iter().map(annotation).collect(),
            composition,
        }
    }

    /// Evaluates the policy on a request, for one binding and one parameter.
    pub fn validate_request(&self, input: &AdmissionInput<'_>) -> ValidateResult {
        match self.conditions.evaluate_with(input, Some(&self.composition)) {
            MatchResult::Yes => {}
            MatchResult::No => return ValidateResult::default(),
            MatchResult::Failed(_) if self.ignores_failure => return ValidateResult::default(),
            MatchResult::Failed(why) => return self.failed_result(why),
        }
        let decisions = match self.evaluate_validations(input) {
            Ok(decisions) => decisions,
            Err(error) => return self.failed_result(error.to_string()),
        };
        match self.evaluate_annotations(input) {
            Ok(annotations) => ValidateResult { decisions, annotations },
            Err(error) => self.failed_result(error.to_string()),
        }
    }

    fn failed_result(&self, why: String) -> ValidateResult {
        ValidateResult { decisions: vec![self.decision_for_error(why)], annotations: Vec::new() }
    }

    fn decision_for_error(&self, message: String) -> PolicyDecision {
        let deny = PolicyDecision::Deny { message, reason: String::new() };
        if self.ignores_failure { PolicyDecision::Admit } else { deny }
    }

    fn evaluate_validations(&self, input: &AdmissionInput<'_>) -> Result<Vec<PolicyDecision>, OverCostBudget> {
        let bound = BoundVariables { authorizer: true, namespace: true };
        let mut scope = EvaluationScope::new(input, Some(&self.composition), bound, POLICY_COST_BUDGET);
        let mut results = Vec::new();
        for validation in &self.validations {
            results.push(scope.evaluate(&validation.expression)?);
        }
        let left = scope.remaining_budget;
        let messages = self.evaluate_messages(input, left);
        let decide = |(at, result): (usize, Result<Value<'_>, EvaluationError>)| match (result, &messages) {
            (Err(error), _) => self.decision_for_error(error.to_string()),
            (Ok(_), Err(why)) => self.decision_for_error(format!("failed messageExpression: {why}")),
            (Ok(Value::Bool(true)), _) => PolicyDecision::Admit,
            (Ok(_), Ok(messages)) => self.validations[at].deny_decision(messages[at].as_deref()),
        };
        Ok(results.into_iter().enumerate().map(decide).collect())
    }

    /// Evaluates each `messageExpression`; `None` if there is none or its result is unusable.
    fn evaluate_messages(
        &self,
        input: &AdmissionInput<'_>,
        budget: u64,
    ) -> Result<Vec<Option<String>>, OverCostBudget> {
        let bound = BoundVariables { authorizer: false, namespace: true };
        let mut scope = EvaluationScope::new(input, Some(&self.composition), bound, budget);
        let mut messages = Vec::new();
        for validation in &self.validations {
            let Some(expression) = &validation.message_expression else {
                messages.push(None);
                continue;
            };
            messages.push(match scope.evaluate(expression)? {
                Ok(Value::String(text)) => valid_message(&text),
                _ => None,
            });
        }
        Ok(messages)
    }

    fn evaluate_annotations(&self, input: &AdmissionInput<'_>) -> Result<Vec<AuditAnnotation>, OverCostBudget> {
        let bound = BoundVariables { authorizer: false, namespace: true };
        let mut scope = EvaluationScope::new(input, Some(&self.composition), bound, POLICY_COST_BUDGET);
        let mut annotations = Vec::new();
        for (key, _, expression) in &self.annotations {
            match scope.evaluate(expression)? {
                Ok(Value::String(text)) if !text.trim().is_empty() => {
                    annotations.push(AuditAnnotation::Publish(key.clone(), text.trim().to_owned()));
                }
                Err(why) if !self.ignores_failure => annotations.push(AuditAnnotation::Failed(why.to_string())),
                _ => {}
            }
        }
        Ok(annotations)
    }
}

impl PolicyValidation {
    fn deny_decision(&self, made: Option<&str>) -> PolicyDecision {
        let message = match (made, self.message.trim()) {
            (Some(made), _) => made.to_owned(),
            (None, "") => format!("failed expression: {}", self.source.trim()),
            (None, message) => message.to_owned(),
        };
        PolicyDecision::Deny { message, reason: self.reason.clone() }
    }
}

/// Returns a message from `messageExpression`, unless it is empty, too long or has several lines.
fn valid_message(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE_LENGTH && !text.contains('\n')).then(|| text.to_owned())
}

/// Returns the names and expressions of a policy's variables.
pub(crate) fn policy_variables(policy: &Json) -> impl Iterator<Item = (&str, &str)> {
    let text = |variable: &'_ Json, field: &str| meta::value_at(variable, &[field]).and_then(Json::as_str).is_some();
    meta::list_at(policy, &["spec", "variables"])
        .iter()
        .filter(move |variable| text(variable, "name"))
        .map(|variable| (meta::string_at(variable, &["name"]), meta::string_at(variable, &["expression"])))
}
