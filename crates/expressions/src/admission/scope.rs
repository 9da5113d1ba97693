//! Variable activation and cost budget of admission expressions.

use std::sync::Arc;

use api::Value as Json;
use cel::{Activation, Authorizer, Composition, CostTracker, ResourceAttributes, Value};

use super::compiler::variable_number;
use crate::compile::{CompileError, CompiledExpr, EvaluationError, PER_CALL_LIMIT};

/// Cost budget of a policy's expressions, per binding and parameter.
pub(super) const POLICY_COST_BUDGET: u64 = 10_000_000;
/// Cost budget of the match conditions of a webhook or a policy.
pub(super) const CONDITIONS_COST_BUDGET: u64 = 2_500_000;

/// The variables of admission expressions; absent values are null.
#[derive(Clone)]
pub struct AdmissionInput<'a> {
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
#[derive(Debug, thiserror::Error)]
#[error("validation failed due to running out of cost budget, no further validation rules will be run")]
pub(super) struct OverCostBudget;

/// The optional variables that are bound.
#[derive(Clone, Copy)]
pub(super) struct BoundVariables {
    pub authorizer: bool,
    pub namespace: bool,
}

/// Evaluates several expressions that share variables and a cost budget.
pub(super) struct EvaluationScope<'a> {
    activation: Activation<'a>,
    /// The remaining cost budget.
    pub remaining_budget: u64,
}

impl<'a> EvaluationScope<'a> {
    pub fn new(
        input: &AdmissionInput<'a>,
        composition: Option<&'a Composition>,
        bound: BoundVariables,
        budget: u64,
    ) -> Self {
        let mut activation = Activation::new();
        let document = |json: &'a Json| Value::from_json(json, None).unwrap_or(Value::Null);
        activation.bind_value(variable_number::OBJECT, document(input.object));
        activation.bind_value(variable_number::OLD_OBJECT, document(input.old_object));
        activation.bind_value(
            variable_number::NAMESPACE,
            if bound.namespace { document(input.namespace) } else { Value::Null },
        );
        activation.bind_value(variable_number::REQUEST, document(input.request));
        activation.bind_value(variable_number::PARAMS, document(input.params));
        if bound.authorizer {
            let authorizer = &input.authorizer;
            activation.bind_value(variable_number::AUTHORIZER, Value::from_authorizer(authorizer.clone()));
            let check = Value::from_resource_check(authorizer.clone(), input.resource.clone());
            activation.bind_value(variable_number::REQUEST_RESOURCE, check);
        }
        if let Some(composition) = composition {
            activation.bind_composition(variable_number::VARIABLES, composition, PER_CALL_LIMIT);
        }
        Self { activation, remaining_budget: budget }
    }

    /// Evaluates an expression; the inner error is its compile or evaluation error.
    pub fn evaluate(
        &mut self,
        expression: &'a Result<CompiledExpr, CompileError>,
    ) -> Result<Result<Value<'a>, EvaluationError>, OverCostBudget> {
        let compiled = match expression {
            Ok(compiled) => compiled,
            Err(error) => return Ok(Err(EvaluationError::Compilation(error.clone()))),
        };
        let mut cost = CostTracker::new(PER_CALL_LIMIT);
        let result = compiled.evaluate(&self.activation, &mut cost);
        self.charge_cost(self.activation.take_composed_cost())?;
        self.charge_cost(cost.actual_cost())?;
        Ok(result)
    }

    fn charge_cost(&mut self, cost: u64) -> Result<(), OverCostBudget> {
        self.remaining_budget = self.remaining_budget.checked_sub(cost).ok_or(OverCostBudget)?;
        Ok(())
    }
}
