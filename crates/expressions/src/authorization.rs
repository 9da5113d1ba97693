//! Match conditions of webhook authorizers: CEL expressions over the `SubjectAccessReview`.

use std::sync::LazyLock;

use api::{
    Value as Json,
    validate::{FieldError, FieldErrorType as FieldFault},
};
use cel::{Activation, CostTracker, Environment, Type, Value};

use crate::{
    compile::{CompileErrorType, CompiledExpr, PER_CALL_LIMIT, compile_expression},
    record::{
        RecordFieldType::{Record as Of, Records, Text, TextLists, Texts},
        RecordType,
    },
};

/// Maximum number of match conditions of a webhook.
const MAX_CONDITIONS: usize = 64;

const REQUIREMENT: RecordType = RecordType {
    name: "kubernetes.SelectorRequirement",
    fields: &[("key", Text), ("operator", Text), ("values", Texts)],
};
const RESOURCE: RecordType = RecordType {
    name: "kubernetes.ResourceAttributes",
    fields: &[
        ("namespace", Text),
        ("verb", Text),
        ("group", Text),
        ("version", Text),
        ("resource", Text),
        ("subresource", Text),
        ("name", Text),
        (
            "fieldSelector",
            Of(&RecordType {
                name: "kubernetes.FieldSelectorAttributes",
                fields: &[("rawSelector", Text), ("requirements", Records(&REQUIREMENT))],
            }),
        ),
        (
            "labelSelector",
            Of(&RecordType {
                name: "kubernetes.LabelSelectorAttributes",
                fields: &[("rawSelector", Text), ("requirements", Records(&REQUIREMENT))],
            }),
        ),
    ],
};
const PATH: RecordType =
    RecordType { name: "kubernetes.NonResourceAttributes", fields: &[("path", Text), ("verb", Text)] };
const REQUEST: RecordType = RecordType {
    name: "kubernetes.SubjectAccessReviewSpec",
    fields: &[
        ("resourceAttributes", Of(&RESOURCE)),
        ("nonResourceAttributes", Of(&PATH)),
        ("user", Text),
        ("groups", Texts),
        ("extra", TextLists),
        ("uid", Text),
    ],
};

static ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().with_variable("request", REQUEST.cel_type()));

/// Match conditions that must all be true for the webhook to be called.
#[derive(Debug, Default)]
pub struct WebhookMatchConditions(Vec<CompiledExpr>);

impl WebhookMatchConditions {
    /// Compiles the expressions of `field` and adds their errors to `errors`.
    pub fn compile<'e>(
        expressions: impl ExactSizeIterator<Item = &'e str>,
        field: &str,
        errors: &mut Vec<FieldError>,
    ) -> Self {
        let mut compiled = Vec::new();
        if expressions.len() > MAX_CONDITIONS {
            let message = format!("must have at most {MAX_CONDITIONS} items");
            errors.push(FieldError::new(
                format!("{field}.matchConditions"),
                FieldFault::TooMany(expressions.len()),
                message,
            ));
            return Self::default();
        }
        let mut seen: Vec<&str> = Vec::new();
        for (at, source) in expressions.enumerate() {
            let field = format!("{field}.matchConditions[{at}].expression");
            if source.trim().is_empty() {
                errors.push(FieldError::required(field, ""));
                continue;
            }
            if seen.contains(&source) {
                errors.push(FieldError::duplicate(field, source));
                continue;
            }
            seen.push(source);
            match compile_expression(&ENVIRONMENT, source, &[Type::Bool]) {
                Ok(condition) => compiled.push(condition),
                Err(fault) => errors.push(match fault.kind {
                    CompileErrorType::Invalid => FieldError::invalid(field, source, fault.detail),
                    CompileErrorType::Internal => FieldError::new(field, FieldFault::Internal, fault.detail),
                }),
            }
        }
        Self(compiled)
    }

    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates the conditions on a `SubjectAccessReview`, in which absent strings are set to empty ones. A false
    /// condition takes precedence over errors.
    pub fn evaluate(&self, request: &Json) -> Result<bool, Vec<String>> {
        let mut activation = Activation::new();
        activation.bind_value(0, Value::from_json(request, None).unwrap_or(Value::Null));
        let mut errors = Vec::new();
        for condition in &self.0 {
            match condition.evaluate(&activation, &mut CostTracker::new(PER_CALL_LIMIT)) {
                Ok(Value::Bool(true)) => {}
                Ok(_) => return Ok(false),
                Err(error) => errors.push(format!("cel evaluation error: {error}")),
            }
        }
        if errors.is_empty() { Ok(true) } else { Err(errors) }
    }
}
