//! A compiled CEL validation rule: program, estimated cost and message expression.

use std::sync::Arc;

use cel::{CheckedExpr, Environment, Program, Type};

use super::{cel_types, field_path::parse_field_path, size_estimator::SchemaSizeEstimator};
use crate::structural_schema::{CompiledRule, RuleCompileError, Structural, ValidationRule, ValidationRules};

/// Name of the type of `self`. Upstream's name ends with random digits.
pub const SELF_TYPE_NAME: &str = "selfType0";
/// Indexes of the variables `self` and `oldSelf`.
pub const SELF_VARIABLE: usize = 0;
pub const OLD_SELF_VARIABLE: usize = 1;

impl ValidationRules {
    /// Compiles the rules for values of `spine`, once; `None` if its schema has no CEL type.
    pub fn compiled(&self, spine: &Arc<Structural>) -> Option<&[CompiledRule]> {
        let ty = cel_types::cel_type(spine, SELF_TYPE_NAME)?;
        Some(self.compiled.get_or_init(|| self.list.iter().map(|rule| CompiledRule::new(rule, spine, &ty)).collect()))
    }
}

impl CompiledRule {
    /// Compiles a rule for values of `node`, whose CEL type is `ty`.
    pub fn new(rule: &ValidationRule, node: &Arc<Structural>, ty: &Type) -> Self {
        let mut compiled = Self {
            program: Ok(None),
            uses_old: false,
            cost: 0,
            message: None,
            field: parse_field_path(&rule.field_path, node).unwrap_or_default(),
        };
        if rule.rule.trim().is_empty() {
            return compiled;
        }
        let old = if rule.optional_old_self == Some(true) { Type::optional_of(ty.clone()) } else { ty.clone() };
        let environment = Environment::new().with_variable("self", ty.clone()).with_variable("oldSelf", old);
        match compile_expression(&environment, &rule.rule, ExpectedType::Bool) {
            Err(why) => {
                compiled.program = Err(why);
                return compiled;
            }
            Ok((checked, program)) => {
                compiled.uses_old = checked.uses_variable(OLD_SELF_VARIABLE);
                compiled.cost = checked.estimate_cost(&SchemaSizeEstimator(node)).max;
                compiled.program = Ok(Some(program));
            }
        }
        if !rule.message_expression.is_empty() {
            let message = compile_expression(&environment, &rule.message_expression, ExpectedType::String);
            compiled.message = Some(
                message.map(|(checked, program)| (program, checked.estimate_cost(&SchemaSizeEstimator(node)).max)),
            );
        }
        compiled
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedType {
    Bool,
    String,
}

fn compile_expression(
    environment: &Environment,
    source: &str,
    want: ExpectedType,
) -> Result<(CheckedExpr, Program), RuleCompileError> {
    let name = if want == ExpectedType::String { "messageExpression " } else { "" };
    let checked = environment.compile(source).map_err(|issues| RuleCompileError::Compilation(name, issues))?;
    match want {
        ExpectedType::Bool if !checked.output_type().is_bool() => {
            return Err(RuleCompileError::OutputType("cel expression must evaluate to a bool"));
        }
        ExpectedType::String if !checked.output_type().is_string() => {
            return Err(RuleCompileError::OutputType("messageExpression must evaluate to a string"));
        }
        _ => {}
    }
    let what = if want == ExpectedType::String { "messageExpression" } else { "program" };
    let program = checked.plan_program().map_err(|error| RuleCompileError::Instantiation(what, error))?;
    Ok((checked, program))
}
