//! Evaluation. `&&` and `||` may absorb errors; costs are always charged.

use super::{Activation, ConstantSet, CostTracker, FunctionCall, PlanNode, Program, RegexMatch};
use crate::{
    cost::{LIST_COST, MAP_COST, STRUCT_COST, runtime_cost::CostRule},
    error::EvalError,
    library,
    value::{MapValue, Value, fuel, map},
};

/// Minimum number of elements that an evaluation may traverse, regardless of its cost limit.
const LEAST_FUEL: u64 = 1 << 20;

pub(super) type EvalResult<'a> = Result<Value<'a>, EvalError>;

/// A comprehension variable.
pub(super) enum LocalValue<'a> {
    Value(Value<'a>),
    Failed(EvalError),
    /// Evaluated on first use.
    Pending(&'a PlanNode),
}

pub(super) struct Interpreter<'a, 'm> {
    pub(super) activation: &'m Activation<'a>,
    pub(super) locals: Vec<LocalValue<'a>>,
    pub(super) budget: CostTracker<'m>,
}

pub(super) fn run_program<'a>(
    program: &'a Program,
    activation: &Activation<'a>,
    budget: &mut CostTracker<'_>,
) -> EvalResult<'a> {
    let own = CostTracker { limit: budget.limit, spent: 0, stop: budget.stop };
    let locals = (0..program.locals).map(|_| LocalValue::Value(Value::Null)).collect();
    let mut machine = Interpreter { activation, locals, budget: own };
    let before = fuel::set_fuel(budget.limit.saturating_mul(4).saturating_add(LEAST_FUEL));
    let mut outcome = machine.eval_node(&program.root);
    if let Ok(value) = &outcome {
        value.traverse_elements();
    }
    if fuel::is_empty() {
        outcome = Err(EvalError::CostLimit);
    }
    // Restores the fuel of the enclosing evaluation, which a nested one does not consume.
    fuel::set_fuel(before);
    budget.spent = machine.budget.spent;
    outcome
}

impl<'a> Interpreter<'a, '_> {
    pub(super) fn charge_cost(&mut self, cost: u64) -> Result<(), EvalError> {
        self.budget.charge_cost(cost)
    }

    pub(super) fn eval_node(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        match node {
            PlanNode::Constant(value) => Ok(value.clone()),
            PlanNode::Attribute(attribute) => self.eval_attribute(attribute),
            PlanNode::Has(attribute) => self.eval_presence_test(attribute),
            PlanNode::And(terms) => self.eval_logical(terms, false),
            PlanNode::Or(terms) => self.eval_logical(terms, true),
            PlanNode::Equal(pair) => self.eval_equality(pair, true),
            PlanNode::NotEqual(pair) => self.eval_equality(pair, false),
            PlanNode::Call(call) => self.eval_call(call),
            PlanNode::Matches(call) => self.eval_regex_match(call),
            PlanNode::NotStrictlyFalse(node) => self.eval_not_strictly_false(node),
            PlanNode::In(pair) => Ok(Value::Bool(pair.1.contains_value(&self.eval_node(&pair.0)?))),
            PlanNode::List(items) => self.eval_list(items),
            PlanNode::Map(entries) => self.eval_map(entries),
            PlanNode::Struct(made) => self.eval_struct(&made.0, &made.1),
            PlanNode::Fold(fold) => self.eval_comprehension(fold),
            PlanNode::OrElse(pair, unwrap) => self.eval_or_else(pair, *unwrap),
        }
    }

    /// Evaluates `&&` or `||`. A `decisive` operand short-circuits; an error is returned only if no operand is
    /// decisive.
    fn eval_logical(&mut self, terms: &'a [PlanNode], decisive: bool) -> EvalResult<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval_node(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => drop(failed.get_or_insert_with(EvalError::no_such_overload)),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn eval_equality(&mut self, pair: &'a (PlanNode, PlanNode), holds: bool) -> EvalResult<'a> {
        let left = self.eval_operand(&pair.0)?;
        let right = self.eval_operand(&pair.1)?;
        let unit = matches!(left, Ok(Value::Native(_))) && holds;
        let size = |value: &Result<Value<'a>, EvalError>| value.as_ref().map_or(1, Value::cost_size);
        let cost =
            if unit { 1 } else { crate::cost::scale_cost(size(&left).min(size(&right)), crate::cost::STRING_FACTOR) };
        self.charge_cost(cost)?;
        let (left, right) = (left?, right?);
        if !are_comparable(&left, &right) {
            return if holds { Err(EvalError::no_such_overload()) } else { Ok(Value::Bool(true)) };
        }
        Ok(Value::Bool((left == right) == holds))
    }

    /// Evaluates an operand to a value or an error that can be absorbed; final errors are returned as `Err`.
    fn eval_operand(&mut self, node: &'a PlanNode) -> Result<EvalResult<'a>, EvalError> {
        match self.eval_node(node) {
            Err(error) if error.is_fatal() => Err(error),
            outcome => Ok(outcome),
        }
    }

    fn eval_call(&mut self, call: &'a FunctionCall) -> EvalResult<'a> {
        match &*call.args {
            [] => self.apply_function(call, &mut []),
            [arg] => {
                let arg = self.eval_operand(arg)?;
                self.call_checked(call, [arg])
            }
            // Both operands are evaluated and charged, even if the first fails.
            [left, right] if call.function.name != "format" => {
                let args = [self.eval_operand(left)?, self.eval_operand(right)?];
                self.call_checked(call, args)
            }
            args => {
                let mut values = args.iter().map(|arg| self.eval_node(arg)).collect::<Result<Vec<_>, _>>()?;
                self.apply_function(call, &mut values)
            }
        }
    }

    fn call_checked<const N: usize>(&mut self, call: &'a FunctionCall, args: [EvalResult<'a>; N]) -> EvalResult<'a> {
        if let Some(error) = args.iter().find_map(|arg| arg.as_ref().err()).cloned() {
            let values = args.map(|arg| arg.unwrap_or(Value::Null));
            self.charge_cost(call.price.argument_cost(&values) + call.price.result_cost(None))?;
            return Err(error);
        }
        let mut values = args.map(|arg| arg.unwrap_or(Value::Null));
        self.apply_function(call, &mut values)
    }

    fn apply_function(&mut self, call: &'a FunctionCall, args: &mut [Value<'a>]) -> EvalResult<'a> {
        self.charge_cost(call.price.argument_cost(args))?;
        let Some(body) = call.function.body else { return Ok(args.first().cloned().unwrap_or(Value::Null)) };
        let result = library::call_function(call.function.name, body, args);
        if call.price == CostRule::Joined || call.price == CostRule::Made {
            self.charge_cost(call.price.result_cost(result.as_ref().ok()))?;
        }
        result
    }

    fn eval_regex_match(&mut self, call: &'a RegexMatch) -> EvalResult<'a> {
        let args = call.args.iter().map(|arg| self.eval_node(arg)).collect::<Result<Vec<_>, _>>()?;
        self.charge_cost(call.price.argument_cost(&args))?;
        match call.function {
            "matches" => Ok(Value::Bool(call.regex.is_match(library::string_arg(&args[0])?))),
            "find" => library::find_match(&call.regex, &args),
            _ => library::find_all_matches(&call.regex, &args),
        }
    }

    fn eval_not_strictly_false(&mut self, node: &'a PlanNode) -> EvalResult<'a> {
        let value = self.eval_operand(node)?;
        self.charge_cost(1)?;
        Ok(Value::Bool(!matches!(value, Ok(Value::Bool(false)))))
    }

    fn eval_list(&mut self, items: &'a [(PlanNode, bool)]) -> EvalResult<'a> {
        let mut values = Vec::with_capacity(items.len());
        let gathered = items.iter().try_for_each(|(node, optional)| {
            let value = self.eval_node(node)?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(value))) => values.push((*value).clone()),
                (true, other) => {
                    let shown = other.display_text();
                    return Err(EvalError::new(format!(
                        "cannot initialize optional list element from non-optional value {shown}"
                    )));
                }
            }
            Ok(())
        });
        self.charge_cost(LIST_COST)?;
        gathered.map(|()| Value::from_list(values))
    }

    fn eval_map(&mut self, entries: &'a [(PlanNode, PlanNode, bool)]) -> EvalResult<'a> {
        let mut made = std::collections::BTreeMap::new();
        let gathered = entries.iter().try_for_each(|(key, value, optional)| {
            let key = self.eval_node(key)?;
            let value = unwrap_entry(self.eval_node(value)?, *optional, || key.display_text())?;
            let Some(key) = map::to_map_key(&key) else {
                return Err(EvalError::new(format!("unsupported key type: {}", key.type_of().type_name())));
            };
            match value {
                Some(value) => drop(made.insert(key, value)),
                None => drop(made.remove(&key)),
            }
            Ok(())
        });
        self.charge_cost(MAP_COST)?;
        gathered.map(|()| Value::Map(MapValue::Made(std::sync::Arc::new(made))))
    }

    fn eval_struct(&mut self, name: &str, fields: &'a [(Box<str>, PlanNode, bool)]) -> EvalResult<'a> {
        let mut made: Vec<(Box<str>, Value<'a>)> = Vec::new();
        let gathered = fields.iter().try_for_each(|(name, node, optional)| {
            if let Some(value) = unwrap_entry(self.eval_node(node)?, *optional, || name.to_string())? {
                made.retain(|(known, _)| known != name);
                made.push((name.clone(), value));
            }
            Ok(())
        });
        self.charge_cost(STRUCT_COST)?;
        gathered.map(|()| Value::Struct(std::sync::Arc::new((name.into(), made))))
    }

    fn eval_or_else(&mut self, pair: &'a (PlanNode, PlanNode), unwrap: bool) -> EvalResult<'a> {
        match self.eval_node(&pair.0)? {
            Value::Optional(Some(value)) if unwrap => Ok((*value).clone()),
            Value::Optional(None) => self.eval_node(&pair.1),
            other => Ok(other),
        }
    }
}

/// Unwraps the value of an optional entry; `None` if it is absent.
fn unwrap_entry<'a>(
    value: Value<'a>,
    optional: bool,
    name: impl Fn() -> String,
) -> Result<Option<Value<'a>>, EvalError> {
    match (optional, value) {
        (false, value) => Ok(Some(value)),
        (true, Value::Optional(value)) => Ok(value.map(|value| (*value).clone())),
        (true, other) => Err(EvalError::new(format!(
            "cannot initialize optional entry '{}' from non-optional value {}",
            name(),
            other.display_text()
        ))),
    }
}

/// Whether two values may be compared: lists and maps of a document with a schema only compare with their own kind.
fn are_comparable(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (_, Value::Null) => true,
        (Value::List(list), right) => list.document_schema().is_none() || matches!(right, Value::List(_)),
        (Value::Map(MapValue::Json(_, Some(_))), right) => matches!(right, Value::Map(_)),
        _ => true,
    }
}

impl ConstantSet {
    fn contains_value(&self, value: &Value<'_>) -> bool {
        match value {
            Value::Double(value) => self.doubles.contains(value),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::String(_) => {
                map::to_map_key(value).is_some_and(|key| self.keys.contains(&key))
            }
            _ => false,
        }
    }
}
