//! Match conditions: whether a webhook or a policy is about a request at all.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};

use super::{
    compiler::{Compiler, Uses},
    scope::{Input, PER_CONDITIONS, Scope, Shows},
};
use crate::compile::{Compiled, Fault};

/// Expressions that must all be true.
#[derive(Debug, Default)]
pub struct Conditions {
    all: Vec<Result<Compiled, Fault>>,
}

/// What conditions say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// All are true.
    Yes,
    /// One is false.
    No,
    /// None is false, but some have no value.
    Failed(String),
}

impl Conditions {
    /// The conditions of a webhook.
    pub fn of_webhook(conditions: &[Json]) -> Self {
        Self::compile(&Compiler::plain(), conditions, Uses { authorizer: true, ..Uses::default() })
    }

    pub(super) fn compile(compiler: &Compiler, conditions: &[Json], uses: Uses) -> Self {
        let compile =
            |condition: &Json| compiler.compile(meta::string_at(condition, &["expression"]), uses, &[Type::Bool]);
        Self { all: conditions.iter().map(compile).collect() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What they say of a request.
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
