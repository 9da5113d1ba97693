//! Variable bindings and cost budget of admission expressions.

use std::sync::Arc;

use api::Value as Json;
use cel::{Activation, Authorizer, Composition, CostTracker, ResourceAttributes, Value};

use super::compiler::number;
use crate::compile::{Compiled, Fault, PER_CALL};

/// Cost budget of a policy's expressions, per binding and parameter.
pub(super) const PER_POLICY: u64 = 10_000_000;
/// Cost budget of the match conditions of a webhook or a policy.
pub(super) const PER_CONDITIONS: u64 = 2_500_000;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The variables of admission expressions; absent values are null.
#[derive(Clone)]
pub struct Input<'a> {
    /// `object`: the object to be written.
    pub object: &'a Json,
    /// `oldObject`: the existing object.
    pub old_object: &'a Json,
    /// `request`: the admission request.
    pub request: &'a Json,
    /// The request as match conditions see it: with its original resource, even if the rules match an equivalent one.
    pub own_request: &'a Json,
    /// `namespaceObject`: the namespace of the object.
    pub namespace: &'a Json,
    /// `params`: the parameter object that the binding selects.
    pub params: &'a Json,
    /// `authorizer`: performs authorization checks.
    pub authorizer: Arc<dyn Authorizer>,
    /// The resource of `authorizer.requestResource`.
    pub resource: ResourceAttributes,
}

/// The cost budget is exceeded; all results are discarded.
#[derive(Debug)]
pub(super) struct OutOfBudget;

impl std::fmt::Display for OutOfBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(OUT_OF_BUDGET)
    }
}

/// The optional variables that are bound.
#[derive(Clone, Copy)]
pub(super) struct Shows {
    pub authorizer: bool,
    pub namespace: bool,
}

/// Evaluates several expressions that share variables and a cost budget.
pub(super) struct Scope<'a> {
    bindings: Activation<'a>,
    /// The remaining cost budget.
    pub left: u64,
}

impl<'a> Scope<'a> {
    pub fn new(input: &Input<'a>, composition: Option<&'a Composition>, shows: Shows, budget: u64) -> Self {
        let mut bindings = Activation::new();
        let document = |json: &'a Json| Value::from_json(json, None).unwrap_or(Value::Null);
        bindings.bind_value(number::OBJECT, document(input.object));
        bindings.bind_value(number::OLD_OBJECT, document(input.old_object));
        bindings.bind_value(number::NAMESPACE, if shows.namespace { document(input.namespace) } else { Value::Null });
        bindings.bind_value(number::REQUEST, document(input.request));
        bindings.bind_value(number::PARAMS, document(input.params));
        if shows.authorizer {
            let authorizer = &input.authorizer;
            bindings.bind_value(number::AUTHORIZER, Value::from_authorizer(authorizer.clone()));
            let check = Value::from_resource_check(authorizer.clone(), input.resource.clone());
            bindings.bind_value(number::REQUEST_RESOURCE, check);
        }
        if let Some(composition) = composition {
            bindings.bind_composition(number::VARIABLES, composition, PER_CALL);
        }
        Self { bindings, left: budget }
    }

    /// Evaluates an expression; the inner error is its compile or evaluation error.
    pub fn evaluate(
        &mut self,
        expression: &'a Result<Compiled, Fault>,
    ) -> Result<Result<Value<'a>, String>, OutOfBudget> {
        let compiled = match expression {
            Ok(compiled) => compiled,
            Err(fault) => return Ok(Err(format!("compilation error: {fault}"))),
        };
        let mut budget = CostTracker::new(PER_CALL);
        let outcome = compiled.program.run(&self.bindings, &mut budget);
        self.spend(self.bindings.take_composed_cost())?;
        self.spend(budget.actual_cost())?;
        Ok(outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", compiled.source)))
    }

    fn spend(&mut self, cost: u64) -> Result<(), OutOfBudget> {
        self.left = self.left.checked_sub(cost).ok_or(OutOfBudget)?;
        Ok(())
    }
}
