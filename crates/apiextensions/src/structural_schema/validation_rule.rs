//! CEL validation rules as data: their source in the CRD, and their programs once compiled.

use std::sync::OnceLock;

use api::Value;
use cel::Program;

/// A validation rule as written in the CRD.
#[derive(Debug)]
pub struct ValidationRule {
    /// The CEL expression.
    pub rule: Box<str>,
    /// Message of a failed rule.
    pub message: Box<str>,
    /// CEL expression that evaluates to the message; takes precedence over `message`.
    pub message_expression: Box<str>,
    /// Error type of a failed rule, such as `FieldValueForbidden`.
    pub reason: Option<Box<str>>,
    /// Path of the field that a failure is reported at.
    pub field_path: Box<str>,
    /// `optionalOldSelf`: whether a transition rule also runs if there is no old value.
    pub optional_old_self: Option<bool>,
}

impl ValidationRule {
    /// Parses a rule.
    pub fn parse(rule: &Value) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().into();
        Self {
            rule: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: rule.get("reason").and_then(Value::as_str).map(Into::into),
            field_path: text("fieldPath"),
            optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
        }
    }

    /// Returns the message, or else the expression, to identify the rule in errors.
    pub fn identify(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    /// Returns the static message of a failed rule.
    pub fn failure_message(&self) -> String {
        match &*self.message {
            "" => format!("failed rule: {}", self.rule.trim()),
            message => message.trim().to_owned(),
        }
    }
}

/// The validation rules of a schema node.
#[derive(Debug, Default)]
pub struct ValidationRules {
    /// In the order of the CRD.
    pub list: Box<[ValidationRule]>,
    pub(crate) compiled: OnceLock<Box<[CompiledRule]>>,
}

impl ValidationRules {
    /// Creates rules that are compiled on first use.
    pub fn new(list: Box<[ValidationRule]>) -> Self {
        Self { list, compiled: OnceLock::new() }
    }
}

/// A validation rule that does not compile; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum RuleCompileError {
    /// The expression is malformed, or its types do not match.
    #[error("{0}compilation failed: {1}")]
    Compilation(&'static str, #[source] cel::Issues),
    /// The expression has another type than it must have.
    #[error("{0}")]
    OutputType(&'static str),
    /// The expression cannot be planned.
    #[error("{0} instantiation failed: {1}")]
    Instantiation(&'static str, #[source] cel::EvalError),
}

/// A compiled CEL validation rule.
#[derive(Debug)]
pub struct CompiledRule {
    /// The rule's program; `None` if the rule is empty, `Err` if it does not compile.
    pub program: Result<Option<Program>, RuleCompileError>,
    /// Whether the rule is a transition rule, which uses `oldSelf`.
    pub uses_old: bool,
    /// The estimated cost of one evaluation.
    pub cost: u64,
    /// Program and estimated cost of `messageExpression`.
    pub message: Option<Result<(Program, u64), RuleCompileError>>,
    /// Field path that errors are reported at, relative to the value.
    pub field: String,
}
