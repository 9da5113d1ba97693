//! CEL validation rules (`x-kubernetes-validations`). They are compiled on first use, typed by the schema, and run
//! within a cost budget.

mod check;
mod compile;
mod path;
mod run;
mod sizes;
mod types;

use std::sync::{Arc, OnceLock};

use api::Value;
pub use check::check;
pub use path::field_path;
pub use run::run;

use self::compile::Compiled;
use crate::schema::Node;

/// Runtime cost limit of one evaluation.
const PER_CALL: u64 = 1_000_000;

/// A validation rule as written in the CRD.
#[derive(Debug)]
pub struct Rule {
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

impl Rule {
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
    fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    /// Returns the static message of a failed rule.
    fn told(&self) -> String {
        match &*self.message {
            "" => format!("failed rule: {}", self.rule.trim()),
            message => message.trim().to_owned(),
        }
    }
}

/// The validation rules of a schema node.
#[derive(Debug, Default)]
pub struct Rules {
    /// In the order of the CRD.
    pub list: Box<[Rule]>,
    compiled: OnceLock<Box<[Compiled]>>,
}

impl Rules {
    /// Creates rules that are compiled on first use.
    pub fn new(list: Box<[Rule]>) -> Self {
        Self { list, compiled: OnceLock::new() }
    }

    /// Compiles the rules for values of `spine`, once; `None` if its schema has no CEL type.
    fn compiled(&self, spine: &Arc<Node>) -> Option<&[Compiled]> {
        let ty = types::of(spine, compile::SELF)?;
        Some(self.compiled.get_or_init(|| self.list.iter().map(|rule| Compiled::new(rule, spine, &ty)).collect()))
    }
}
