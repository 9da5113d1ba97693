//! Rules: what must hold for a part of an object, in CEL. They are compiled when they are first needed, by the types that the
//! schema gives them, and run within a budget.

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

/// What one evaluation may cost.
const PER_CALL: u64 = 1_000_000;

/// A rule as it was written.
#[derive(Debug)]
pub struct Rule {
    /// The expression.
    pub rule: Box<str>,
    /// What is said where it does not hold.
    pub message: Box<str>,
    /// What says what is said.
    pub message_expression: Box<str>,
    /// The kind of fault.
    pub reason: Option<Box<str>>,
    /// The field that is told.
    pub field_path: Box<str>,
    /// Whether the old value may be absent.
    pub optional_old_self: Option<bool>,
}

impl Rule {
    /// Reads a rule.
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

    /// The rule in short, for messages.
    fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    /// What is said where it does not hold and no expression says it.
    fn told(&self) -> String {
        match &*self.message {
            "" => format!("failed rule: {}", self.rule.trim()),
            message => message.trim().to_owned(),
        }
    }
}

/// The rules of a part of a schema.
#[derive(Debug, Default)]
pub struct Rules {
    /// In their order.
    pub list: Box<[Rule]>,
    compiled: OnceLock<Box<[Compiled]>>,
}

impl Rules {
    /// Rules that are not compiled yet.
    pub fn new(list: Box<[Rule]>) -> Self {
        Self { list, compiled: OnceLock::new() }
    }

    /// The rules, compiled for values of `spine`; `None` if rules cannot be about such values.
    fn compiled(&self, spine: &Arc<Node>) -> Option<&[Compiled]> {
        let ty = types::of(spine, compile::SELF)?;
        Some(self.compiled.get_or_init(|| self.list.iter().map(|rule| Compiled::new(rule, spine, &ty)).collect()))
    }
}
