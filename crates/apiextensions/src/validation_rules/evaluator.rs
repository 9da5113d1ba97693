//! Evaluates the CEL validation rules of a whole object within one cost budget.
//!
//! A transition rule runs only if there is an old value, unless `optionalOldSelf` is set. Failures of other rules on
//! unchanged values are ignored (ratcheting).

use std::sync::Arc;

use api::{
    Value,
    validate::{BadValue, FieldError, FieldErrorType},
};
use cel::{Activation, CostTracker, EvalError};

use super::{
    PER_CALL_COST_LIMIT, cel_types,
    compiler::{OLD_SELF_VARIABLE, SELF_VARIABLE},
};
use crate::{
    correlation,
    structural_schema::{AdditionalProperties, CompiledRule, JsonType, Structural, ValidationRule},
};

/// Runtime cost budget of all rules of an object (upstream: `RuntimeCELCostBudget`).
const COST_BUDGET: u64 = 10_000_000;
/// Maximum length of a message from `messageExpression`, in bytes.
const MAX_MESSAGE_LENGTH: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates the rules of a schema on an object and returns the failures.
pub fn evaluate_rules(root: &Arc<Structural>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut evaluator = RuleEvaluator { budget: COST_BUDGET, errors: Vec::new() };
    let target = RuleValue {
        value: object,
        old,
        matched: CorrelatedValue { current: old.map(|old| (object, old)), parent: None },
    };
    // `BudgetExhausted` needs no handling: its error is already in `errors`.
    let _ = evaluator.evaluate_value((root, root), "", target);
    evaluator.errors
}

/// The cost budget is exhausted; no further rule is run.
struct BudgetExhausted;

struct RuleEvaluator {
    budget: u64,
    errors: Vec<FieldError>,
}

#[derive(Clone, Copy)]
struct RuleValue<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    matched: CorrelatedValue<'a>,
}

/// The correlated old value of a value, or of its nearest ancestor that has one.
#[derive(Clone, Copy)]
struct CorrelatedValue<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> CorrelatedValue<'a> {
    fn descend(self, value: &'a Value, old: Option<&'a Value>) -> Self {
        match self.current {
            None => self,
            current => Self { current: old.map(|old| (value, old)), parent: current },
        }
    }

    /// Whether the correlated value is unchanged.
    fn is_unchanged(&self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }
}

impl RuleEvaluator {
    /// Evaluates the rules of a value and of everything below it: rules of the first node, types of the second.
    fn evaluate_value(
        &mut self,
        (rules, schema): (&Structural, &Arc<Structural>),
        path: &str,
        target: RuleValue,
    ) -> Result<(), BudgetExhausted> {
        if !rules.has_rules || target.value.is_null() {
            return Ok(());
        }
        self.evaluate_node_rules(rules, schema, path, target)?;
        for part in rules.value_validation().all_of.iter() {
            let matched = CorrelatedValue { current: None, parent: target.matched.parent };
            self.evaluate_value((part, schema), path, RuleValue { matched, ..target })?;
        }
        match target.value {
            Value::Array(items) => {
                let (Some(rules), Some(inner)) = (&rules.items, &schema.items) else { return Ok(()) };
                let before = correlation::CorrelatedItems::new(schema, items, target.old);
                for (index, item) in items.iter().enumerate() {
                    let old = before.old_item(index);
                    let below = RuleValue { value: item, old, matched: target.matched.descend(item, old) };
                    self.evaluate_value((rules, inner), &format!("{path}[{index}]"), below)?;
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    let old = target.old.and_then(|old| old.get(name));
                    let mut matched = target.matched.descend(value, old);
                    if schema.root && matches!(name.as_str(), "apiVersion" | "kind") {
                        matched = CorrelatedValue { current: None, parent: None };
                    }
                    self.evaluate_field((rules, schema), path, name, RuleValue { value, old, matched })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn evaluate_field(
        &mut self,
        (rules, schema): (&Structural, &Arc<Structural>),
        path: &str,
        name: &str,
        target: RuleValue,
    ) -> Result<(), BudgetExhausted> {
        if let (AdditionalProperties::Schema(rules), AdditionalProperties::Schema(inner)) =
            (&rules.additional_properties, &schema.additional_properties)
        {
            self.evaluate_value((rules, inner), &format!("{path}[{name}]"), target)?;
        }
        let (Some(rules), Some(inner)) = (rules.property(name), schema.property(name)) else { return Ok(()) };
        if !cel_types::has_cel_type(inner) {
            return Ok(());
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        self.evaluate_value((rules, inner), &path, target)
    }

    fn evaluate_node_rules(
        &mut self,
        rules: &Structural,
        schema: &Arc<Structural>,
        path: &str,
        target: RuleValue,
    ) -> Result<(), BudgetExhausted> {
        if rules.rules.list.is_empty() {
            return Ok(());
        }
        let location = ErrorLocation { path, kind: schema.kind, value: target.value };
        let Some(compiled) = rules.rules.compiled(schema) else {
            let why = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.errors.push(location.evaluation_error(why.to_owned()));
            return Ok(());
        };
        if self.budget == 0 {
            self.errors.push(location.evaluation_error(OUT_OF_BUDGET.to_owned()));
            return Err(BudgetExhausted);
        }
        let bound = |value| cel::Value::from_json(value, Some(&**schema));
        let (value, old) = match (bound(target.value), target.old.filter(|old| !old.is_null()).map(bound).transpose()) {
            (Ok(value), Ok(old)) => (value, old),
            (Err(error), _) | (_, Err(error)) => {
                self.errors.push(
                    location.evaluation_error(format!("{error} evaluating rule: {}", rules.rules.list[0].identify())),
                );
                return Ok(());
            }
        };
        for (rule, compiled) in rules.rules.list.iter().zip(compiled) {
            self.evaluate_rule(rule, compiled, &location, (&value, old.as_ref()), &target.matched)?;
        }
        Ok(())
    }

    fn evaluate_rule<'a>(
        &mut self,
        rule: &ValidationRule,
        compiled: &'a CompiledRule,
        location: &ErrorLocation,
        (value, old): (&cel::Value<'a>, Option<&cel::Value<'a>>),
        matched: &CorrelatedValue,
    ) -> Result<(), BudgetExhausted> {
        let program = match &compiled.program {
            Ok(Some(program)) => program,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.errors.push(location.evaluation_error(format!("rule compile error: {error}")));
                return Ok(());
            }
        };
        let optional = rule.optional_old_self == Some(true);
        if compiled.uses_old && old.is_none() && !optional {
            return Ok(());
        }
        let mut bindings = Activation::new();
        bindings.bind_value(SELF_VARIABLE, value.clone());
        if optional {
            bindings.bind_value(OLD_SELF_VARIABLE, cel::Value::Optional(old.cloned().map(Arc::new)));
        } else if let Some(old) = old {
            bindings.bind_value(OLD_SELF_VARIABLE, old.clone());
        }
        let mut budget = CostTracker::new(PER_CALL_COST_LIMIT);
        let result = program.run(&bindings, &mut budget);
        if budget.actual_cost() > self.budget {
            self.errors.push(location.evaluation_error(OUT_OF_BUDGET.to_owned()));
            return Err(BudgetExhausted);
        }
        self.budget -= budget.actual_cost();
        let error = match result {
            Ok(cel::Value::Bool(true)) => return Ok(()),
            Ok(_) => {
                let detail = self.failure_message(rule, compiled, location, &bindings)?;
                location.rule_error(&compiled.field, rule.reason.as_deref(), detail)
            }
            Err(EvalError::CostLimit) => {
                let error = EvalError::CostLimit;
                let what = "no further validation rules will be run due to call cost exceeds limit for rule";
                self.errors.push(location.evaluation_error(format!("'{error}': {what}: {}", rule.identify())));
                return Err(BudgetExhausted);
            }
            Err(error) => {
                self.errors.push(location.evaluation_error(evaluation_error(&error, rule)));
                return Ok(());
            }
        };
        // Ratcheting: a failure on an unchanged value is ignored, unless it is of a transition rule.
        if compiled.uses_old || !matched.is_unchanged() {
            self.errors.push(error);
        }
        Ok(())
    }

    /// Returns the message of a failed rule, evaluating `messageExpression` if there is one.
    fn failure_message<'a>(
        &mut self,
        rule: &ValidationRule,
        compiled: &'a CompiledRule,
        location: &ErrorLocation,
        bindings: &Activation<'a>,
    ) -> Result<String, BudgetExhausted> {
        let Some(Ok((program, _))) = &compiled.message else { return Ok(rule.failure_message()) };
        let mut budget = CostTracker::new(PER_CALL_COST_LIMIT);
        let result = program.run(bindings, &mut budget);
        let why = if budget.actual_cost() > self.budget {
            "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned()
        } else if let Err(EvalError::CostLimit) = result {
            format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                rule.message_expression
            )
        } else {
            self.budget -= budget.actual_cost();
            return Ok(match result {
                Ok(cel::Value::String(text)) => usable_message(&text).unwrap_or_else(|| rule.failure_message()),
                _ => rule.failure_message(),
            });
        };
        self.errors.push(location.evaluation_error(why));
        Err(BudgetExhausted)
    }
}

/// Returns a usable message; `None` if it is empty, too long or has several lines.
fn usable_message(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE_LENGTH && !text.contains('\n')).then(|| text.to_owned())
}

fn evaluation_error(error: &EvalError, rule: &ValidationRule) -> String {
    let text = error.to_string();
    if text.starts_with("no such overload") {
        let what = "call arguments did not match a supported operator, function or macro signature for rule";
        return format!("'{text}': {what}: {}", rule.identify());
    }
    format!("{text} evaluating rule: {}", rule.identify())
}

/// Location and value that rule errors are reported for.
struct ErrorLocation<'a> {
    path: &'a str,
    kind: JsonType,
    value: &'a Value,
}

impl ErrorLocation<'_> {
    fn field_path(&self, below: &str) -> String {
        match (self.path, below) {
            ("", "") => "<nil>".to_owned(),
            ("", below) => below.to_owned(),
            (path, "") => path.to_owned(),
            (path, below) => format!("{path}.{below}"),
        }
    }

    /// Builds the error of a rule that could not be evaluated.
    fn evaluation_error(&self, why: String) -> FieldError {
        FieldError::invalid(self.field_path(""), self.kind.name(), why)
    }

    /// Builds the error of a failed rule.
    fn rule_error(&self, field: &str, reason: Option<&str>, detail: String) -> FieldError {
        let whole = matches!(self.kind, JsonType::Object | JsonType::Array);
        let bad = || if whole { BadValue::Omitted } else { BadValue::Value(self.value.clone()) };
        let kind = match reason {
            Some("FieldValueForbidden") => FieldErrorType::Forbidden,
            Some("FieldValueRequired") => FieldErrorType::Required,
            Some("FieldValueDuplicate") => {
                return FieldError::new(self.field_path(field), FieldErrorType::Duplicate(bad()), "");
            }
            _ => FieldErrorType::Invalid(bad()),
        };
        FieldError::new(self.field_path(field), kind, detail)
    }
}
