//! Match conditions of webhooks and policies.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};

use super::{
    compiler::{Compiler, Uses},
    scope::{Input, PER_CONDITIONS, Scope, Shows},
};
use crate::compile::{Compiled, Fault};

/// Compiled match conditions, which must all be true.
#[derive(Debug, Default)]
pub struct Conditions {
    all: Vec<Result<Compiled, Fault>>,
}

/// Result of match conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// All conditions are true.
    Yes,
    /// A condition is false.
    No,
    /// No condition is false, but some failed to evaluate.
    Failed(String),
}

impl Conditions {
    /// Compiles the match conditions of a webhook.
    pub fn of_webhook(conditions: &[Json]) -> Self {
        Self::compile(&Compiler::plain(), conditions, Uses { authorizer: true, ..Uses::default() })
    }

    pub(super) fn compile(compiler: &Compiler, conditions: &[Json], uses: Uses) -> Self {
        let compile =
            |condition: &Json| compiler.compile(meta::string_at(condition, &["expression"]), uses, &[Type::Bool]);
        Self { all: conditions.iter().map(compile).collect() }
    }

    /// Whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Evaluates the conditions on a request.
    pub fn check(&self, input: &Input<'_>) -> Match {
        self.check_with(input, None)
    }

    pub(super) fn check_with<'a>(&'a self, input: &Input<'a>, composition: Option<&'a Composition>) -> Match {
        let shows = Shows { authorizer: true, namespace: false };
        let input = &Input { request: input.own_request, ..input.clone() };
        let mut scope = Scope::new(input, composition, shows, PER_CONDITIONS);
        let mut results = Vec::new();
        for expression in &self.all {
            match scope.evaluate(expression) {
                Ok(result) => results.push(result),
                Err(error) => return Match::Failed(error.to_string()),
            }
        }
        if results.iter().any(|result| matches!(result, Ok(Value::Bool(false)))) {
            return Match::No;
        }
        let mut errors: Vec<String> = Vec::new();
        for error in results.into_iter().filter_map(Result::err) {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        match errors.as_slice() {
            [] => Match::Yes,
            [one] => Match::Failed(one.clone()),
            many => Match::Failed(format!("[{}]", many.join(", "))),
        }
    }
}
