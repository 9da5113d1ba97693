//! A compiled CEL validation rule: program, estimated cost and message expression.

use std::sync::Arc;

use cel::{CheckedExpr, Environment, Program, Type};

use super::{Rule, field_path, sizes::Reach};
use crate::schema::Node;

/// Name of the type of `self`. Upstream's name ends with random digits.
pub const SELF: &str = "selfType0";
/// Indexes of the variables `self` and `oldSelf`.
pub const VALUE: usize = 0;
pub const OLD: usize = 1;

/// A compiled CEL validation rule.
#[derive(Debug)]
pub struct Compiled {
    /// The rule's program; `None` if the rule is empty, `Err` with the compile error for users.
    pub program: Result<Option<Program>, String>,
    pub uses_old: bool,
    pub cost: u64,
    /// Program and estimated cost of `messageExpression`.
    pub message: Option<Result<(Program, u64), String>>,
    /// Field path that errors are reported at, relative to the value.
    pub field: String,
}

impl Compiled {
    pub fn new(rule: &Rule, node: &Arc<Node>, ty: &Type) -> Self {
        let mut compiled = Self {
            program: Ok(None),
            uses_old: false,
            cost: 0,
            message: None,
            field: field_path(&rule.field_path, node).unwrap_or_default(),
        };
        if rule.rule.trim().is_empty() {
            return compiled;
        }
        let old = if rule.optional_old_self == Some(true) { Type::optional_of(ty.clone()) } else { ty.clone() };
        let environment = Environment::new().with_variable("self", ty.clone()).with_variable("oldSelf", old);
        match expression(&environment, &rule.rule, Want::Truth) {
            Err(why) => {
                compiled.program = Err(why);
                return compiled;
            }
            Ok((checked, program)) => {
                compiled.uses_old = checked.uses_variable(OLD);
                compiled.cost = checked.estimate_cost(&Reach(node)).max;
                compiled.program = Ok(Some(program));
            }
        }
        if !rule.message_expression.is_empty() {
            let message = expression(&environment, &rule.message_expression, Want::Text);
            compiled.message =
                Some(message.map(|(checked, program)| (program, checked.estimate_cost(&Reach(node)).max)));
        }
        compiled
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Truth,
    Text,
}

fn expression(environment: &Environment, source: &str, want: Want) -> Result<(CheckedExpr, Program), String> {
    let name = if want == Want::Text { "messageExpression " } else { "" };
    let checked = environment.compile(source).map_err(|issues| format!("{name}compilation failed: {issues}"))?;
    match want {
        Want::Truth if !checked.output_type().is_bool() => {
            return Err("cel expression must evaluate to a bool".to_owned());
        }
        Want::Text if !checked.output_type().is_string() => {
            return Err("messageExpression must evaluate to a string".to_owned());
        }
        _ => {}
    }
    let what = if want == Want::Text { "messageExpression" } else { "program" };
    let program = checked.plan_program().map_err(|error| format!("{what} instantiation failed: {error}"))?;
    Ok((checked, program))
}
