//! What expressions see of a request, and what they may spend on it.

use std::sync::Arc;

use api::Value as Json;
use cel::{Authorizer, Bindings, Budget, Composition, Resource, Value};

use super::compiler::number;
use crate::compile::{Compiled, Fault, PER_CALL};

/// What the expressions of a policy may cost together, for one binding and one parameter.
pub(super) const PER_POLICY: u64 = 10_000_000;
/// What the match conditions of a webhook or a policy may cost together.
pub(super) const PER_CONDITIONS: u64 = 2_500_000;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// What expressions see of a request. What does not exist is null.
#[derive(Clone)]
pub struct Input<'a> {
    /// The object as it would be.
    pub object: &'a Json,
    /// As it was.
    pub old_object: &'a Json,
    /// The request.
    pub request: &'a Json,
    /// The request as conditions see it: with its own resource, where rules name another version.
    pub own_request: &'a Json,
    /// The namespace of the object.
    pub namespace: &'a Json,
    /// What the policy is told by its binding.
    pub params: &'a Json,
    /// Answers what expressions ask about rights.
    pub authorizer: Arc<dyn Authorizer>,
    /// The resource that `authorizer.requestResource` is about.
    pub resource: Resource,
}

/// The sum of all costs was too large: no result counts.
#[derive(Debug)]
pub(super) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

/// Which variables have values.
#[derive(Clone, Copy)]
pub(super) struct Shows {
    pub authorizer: bool,
    pub namespace: bool,
}

/// An evaluation of several expressions that share their variables and their budget.
pub(super) struct Scope<'a> {
    bindings: Bindings<'a>,
    /// What is left of the budget.
    pub left: u64,
}

impl<'a> Scope<'a> {
    pub fn new(input: &Input<'a>, composition: Option<&'a Composition>, shows: Shows, budget: u64) -> Self {
        let mut bindings = Bindings::new();
        let document = |json: &'a Json| Value::document(json, None).unwrap_or(Value::Null);
        bindings.set(number::OBJECT, document(input.object));
        bindings.set(number::OLD_OBJECT, document(input.old_object));
        bindings.set(number::NAMESPACE, if shows.namespace { document(input.namespace) } else { Value::Null });
        bindings.set(number::REQUEST, document(input.request));
        bindings.set(number::PARAMS, document(input.params));
        if shows.authorizer {
            let authorizer = &input.authorizer;
            bindings.set(number::AUTHORIZER, Value::authorizer(authorizer.clone()));
            let check = Value::resource_check(authorizer.clone(), input.resource.clone());
            bindings.set(number::REQUEST_RESOURCE, check);
        }
        if let Some(composition) = composition {
            bindings.compose(number::VARIABLES, composition, PER_CALL);
        }
        Self { bindings, left: budget }
    }

    /// Evaluates an expression; what is wrong with it is text.
    pub fn evaluate(
        &mut self,
        expression: &'a Result<Compiled, Fault>,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let compiled = match expression {
            Ok(compiled) => compiled,
            Err(fault) => return Ok(Err(format!("compilation error: {fault}"))),
        };
        let mut budget = Budget::new(PER_CALL);
        let outcome = compiled.program.run(&self.bindings, &mut budget);
        self.spend(self.bindings.take_composed_cost())?;
        self.spend(budget.spent())?;
        Ok(outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", compiled.source)))
    }

    fn spend(&mut self, cost: u64) -> Result<(), OutOfBudget> {
        self.left = self.left.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(())
    }
}
