//! Match conditions of webhooks and policies.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};

use super::{
    compiler::{ExpressionCompiler, OptionalVars},
    scope::{AdmissionInput, BoundVariables, CONDITIONS_COST_BUDGET, EvaluationScope},
};
use crate::compile::{CompileError, CompiledExpr};

/// Compiled match conditions, which must all be true.
#[derive(Debug, Default)]
pub struct MatchConditions {
    all: Vec<Result<CompiledExpr, CompileError>>,
}

/// Result of match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchResult {
    /// All conditions are true.
    Yes,
    /// A condition is false.
    No,
    /// No condition is false, but some failed to evaluate.
    Failed(String),
}

impl MatchConditions {
    /// Compiles the match conditions of a webhook.
    pub fn compile_webhook(conditions: &[Json]) -> Self {
        let uses = OptionalVars { authorizer: true, ..OptionalVars::default() };
        Self::compile(&ExpressionCompiler::without_variables(), conditions, uses)
    }

    pub(super) fn compile(compiler: &ExpressionCompiler, conditions: &[Json], uses: OptionalVars) -> Self {
        let compile =
            |condition: &Json| compiler.compile(meta::string_at(condition, &["expression"]), uses, &[Type::Bool]);
        Self { all: conditions.iter().map(compile).collect() }
    }

    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Evaluates the conditions on a request.
    pub fn evaluate(&self, input: &AdmissionInput<'_>) -> MatchResult {
        self.evaluate_with(input, None)
    }

    pub(super) fn evaluate_with<'a>(
        &'a self,
        input: &AdmissionInput<'a>,
        composition: Option<&'a Composition>,
    ) -> MatchResult {
        let bound = BoundVariables { authorizer: true, namespace: false };
        let input = &AdmissionInput { request: input.own_request, ..input.clone() };
        let mut scope = EvaluationScope::new(input, composition, bound, CONDITIONS_COST_BUDGET);
        let mut results = Vec::new();
        for expression in &self.all {
            match scope.evaluate(expression) {
                Ok(result) => results.push(result),
                Err(error) => return MatchResult::Failed(error.to_string()),
            }
        }
        if results.iter().any(|result| matches!(result, Ok(Value::Bool(false)))) {
            return MatchResult::No;
        }
        let mut errors: Vec<String> = Vec::new();
        for error in results.into_iter().filter_map(|result| Some(result.err()?.to_string())) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => MatchResult::Yes,
            [one] => MatchResult::Failed(one.clone()),
            many => MatchResult::Failed(format!("[{}]", many.join(", "))),
        }
    }
}
