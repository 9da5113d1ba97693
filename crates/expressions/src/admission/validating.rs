//! Evaluates `ValidatingAdmissionPolicy` validations and audit annotations.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};

use super::{
    compiler::{Compiler, Uses},
    conditions::{Conditions, Match},
    scope::{Input, PER_POLICY, Scope, Shows},
};
use crate::compile::{Compiled, Fault};

/// Maximum length of a message from `messageExpression`, in bytes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A compiled `ValidatingAdmissionPolicy`.
#[derive(Debug)]
pub struct ValidatingPolicy {
    ignores_failure: bool,
    composition: Composition,
    conditions: Conditions,
    validations: Vec<Validation>,
    annotations: Vec<(String, String, Result<Compiled, Fault>)>,
}

#[derive(Debug)]
struct Validation {
    source: String,
    expression: Result<Compiled, Fault>,
    message: String,
    message_expression: Option<Result<Compiled, Fault>>,
    reason: String,
}

/// Result of evaluating a policy on a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// The decision of each validation.
    pub decisions: Vec<Decision>,
    /// The audit annotations.
    pub annotations: Vec<Annotation>,
}

/// The decision of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
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
pub enum Annotation {
    /// A key and its value.
    Publish(String, String),
    /// The error of an annotation that could not be evaluated.
    Failed(String),
}

impl ValidatingPolicy {
    /// Compiles a policy. Compile errors are reported when it is evaluated.
    pub fn compile(policy: &Json) -> Self {
        let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
        let (uses, plain) = (Uses { params, authorizer: true, patches: false }, Uses { params, ..Uses::default() });
        let mut compiler = Compiler::composed();
        let composition = compiler.variables(variables(policy), uses);
        let conditions = Conditions::compile(&compiler, meta::list_at(policy, &["spec", "matchConditions"]), uses);
        let validation = |validation: &Json| {
            let text = |field: &str| meta::string_at(validation, &[field]);
            let message = text("messageExpression");
            Validation {
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
    pub fn judge(&self, input: &Input<'_>) -> Judgement {
        match self.conditions.check_with(input, Some(&self.composition)) {
            Match::Yes => {}
            Match::No => return Judgement::default(),
            Match::Failed(_) if self.ignores_failure => return Judgement::default(),
            Match::Failed(why) => return self.failed(why),
        }
        let decisions = match self.decisions(input) {
            Ok(decisions) => decisions,
            Err(why) => return self.failed(why),
        };
        match self.annotations(input) {
            Ok(annotations) => Judgement { decisions, annotations },
            Err(why) => self.failed(why),
        }
    }

    fn failed(&self, why: String) -> Judgement {
        Judgement { decisions: vec![self.decision_for_error(why)], annotations: Vec::new() }
    }

    fn decision_for_error(&self, message: String) -> Decision {
        if self.ignores_failure { Decision::Admit } else { Decision::Deny { message, reason: String::new() } }
    }

    fn decisions(&self, input: &Input<'_>) -> Result<Vec<Decision>, String> {
        let shows = Shows { authorizer: true, namespace: true };
        let mut scope = Scope::new(input, Some(&self.composition), shows, PER_POLICY);
        let mut results = Vec::new();
        for validation in &self.validations {
            results.push(scope.evaluate(&validation.expression).map_err(|error| error.to_string())?);
        }
        let left = scope.left;
        let messages = self.messages(input, left);
        let decide = |(at, result): (usize, Result<Value<'_>, String>)| match (result, &messages) {
            (Err(why), _) => self.decision_for_error(why),
            (Ok(_), Err(why)) => self.decision_for_error(format!("failed messageExpression: {why}")),
            (Ok(Value::Bool(true)), _) => Decision::Admit,
            (Ok(_), Ok(messages)) => self.validations[at].deny(messages[at].as_deref()),
        };
        Ok(results.into_iter().enumerate().map(decide).collect())
    }

    /// Evaluates each `messageExpression`; `None` if there is none or its result is unusable.
    fn messages(&self, input: &Input<'_>, budget: u64) -> Result<Vec<Option<String>>, String> {
        let shows = Shows { authorizer: false, namespace: true };
        let mut scope = Scope::new(input, Some(&self.composition), shows, budget);
        let mut messages = Vec::new();
        for validation in &self.validations {
            let Some(expression) = &validation.message_expression else {
                messages.push(None);
                continue;
            };
            messages.push(match scope.evaluate(expression).map_err(|error| error.to_string())? {
                Ok(Value::String(text)) => presentable(&text),
                _ => None,
            });
        }
        Ok(messages)
    }

    fn annotations(&self, input: &Input<'_>) -> Result<Vec<Annotation>, String> {
        let shows = Shows { authorizer: false, namespace: true };
        let mut scope = Scope::new(input, Some(&self.composition), shows, PER_POLICY);
        let mut annotations = Vec::new();
        for (key, _, expression) in &self.annotations {
            match scope.evaluate(expression).map_err(|error| error.to_string())? {
                Ok(Value::String(text)) if !text.trim().is_empty() => {
                    annotations.push(Annotation::Publish(key.clone(), text.trim().to_owned()));
                }
                Err(why) if !self.ignores_failure => annotations.push(Annotation::Failed(why)),
                _ => {}
            }
        }
        Ok(annotations)
    }
}

impl Validation {
    fn deny(&self, made: Option<&str>) -> Decision {
        let message = match (made, self.message.trim()) {
            (Some(made), _) => made.to_owned(),
            (None, "") => format!("failed expression: {}", self.source.trim()),
            (None, message) => message.to_owned(),
        };
        Decision::Deny { message, reason: self.reason.clone() }
    }
}

/// Returns a message from `messageExpression`, unless it is empty, too long or has several lines.
fn presentable(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

/// Returns the names and expressions of a policy's variables.
pub(crate) fn variables(policy: &Json) -> impl Iterator<Item = (&str, &str)> {
    let text = |variable: &'_ Json, field: &str| meta::value_at(variable, &[field]).and_then(Json::as_str).is_some();
    meta::list_at(policy, &["spec", "variables"])
        .iter()
        .filter(move |variable| text(variable, "name"))
        .map(|variable| (meta::string_at(variable, &["name"]), meta::string_at(variable, &["expression"])))
}
