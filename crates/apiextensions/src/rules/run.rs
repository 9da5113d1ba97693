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
    PER_CALL, Rule,
    compile::{Compiled, OLD, VALUE},
    types,
};
use crate::{
    correlate,
    schema::{Kind, Node, Others},
};

/// Runtime cost budget of all rules of an object (upstream: `RuntimeCELCostBudget`).
const BUDGET: u64 = 10_000_000;
/// Maximum length of a message from `messageExpression`, in bytes.
const MESSAGE: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Evaluates the rules of a schema on an object and returns the failures.
pub fn run(root: &Arc<Node>, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut run = Run { left: BUDGET, errors: Vec::new() };
    let place = Place { value: object, old, matched: Matched { current: old.map(|old| (object, old)), parent: None } };
    // `Stop` needs no handling: its error is already in `run.errors`.
    let _ = run.node((root, root), "", place);
    run.errors
}

/// Evaluation ends; no further rule is run.
struct Stop;

struct Run {
    left: u64,
    errors: Vec<FieldError>,
}

#[derive(Clone, Copy)]
struct Place<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    matched: Matched<'a>,
}

/// The correlated old value of a value, or of its nearest ancestor that has one.
#[derive(Clone, Copy)]
struct Matched<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Matched<'a> {
    fn below(self, value: &'a Value, old: Option<&'a Value>) -> Self {
        match self.current {
            None => self,
            current => Self { current: old.map(|old| (value, old)), parent: current },
        }
    }

    /// Whether the correlated value is unchanged.
    fn is_same(&self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }
}

impl Run {
    /// Evaluates the rules of a value and of everything below it: rules of the first node, types of the second.
    fn node(&mut self, (rules, spine): (&Node, &Arc<Node>), path: &str, place: Place) -> Result<(), Stop> {
        if !rules.ruled || place.value.is_null() {
            return Ok(());
        }
        self.rules(rules, spine, path, place)?;
        for part in rules.bounds().all_of.iter() {
            let matched = Matched { current: None, parent: place.matched.parent };
            self.node((part, spine), path, Place { matched, ..place })?;
        }
        match place.value {
            Value::Array(items) => {
                let (Some(rules), Some(inner)) = (&rules.items, &spine.items) else { return Ok(()) };
                let before = correlate::Items::new(spine, items, place.old);
                for (at, item) in items.iter().enumerate() {
                    let old = before.of(at);
                    let below = Place { value: item, old, matched: place.matched.below(item, old) };
                    self.node((rules, inner), &format!("{path}[{at}]"), below)?;
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    let old = place.old.and_then(|old| old.get(name));
                    let mut matched = place.matched.below(value, old);
                    if spine.root && matches!(name.as_str(), "apiVersion" | "kind") {
                        matched = Matched { current: None, parent: None };
                    }
                    self.field((rules, spine), path, name, Place { value, old, matched })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn field(&mut self, (rules, spine): (&Node, &Arc<Node>), path: &str, name: &str, place: Place) -> Result<(), Stop> {
        if let (Others::Node(rules), Others::Node(inner)) = (&rules.others, &spine.others) {
            self.node((rules, inner), &format!("{path}[{name}]"), place)?;
        }
        let (Some(rules), Some(inner)) = (rules.property(name), spine.property(name)) else { return Ok(()) };
        if !types::is_typed(inner) {
            return Ok(());
        }
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        self.node((rules, inner), &path, place)
    }

    fn rules(&mut self, rules: &Node, spine: &Arc<Node>, path: &str, place: Place) -> Result<(), Stop> {
        if rules.rules.list.is_empty() {
            return Ok(());
        }
        let at = Told { path, kind: spine.kind, value: place.value };
        let Some(compiled) = rules.rules.compiled(spine) else {
            let why = "rule compiler initialization error: failed to convert to declType for CEL validation rules";
            self.errors.push(at.failed(why.to_owned()));
            return Ok(());
        };
        if self.left == 0 {
            self.errors.push(at.failed(OUT_OF_BUDGET.to_owned()));
            return Err(Stop);
        }
        let bound = |value| cel::Value::from_json(value, Some(&**spine));
        let (value, old) = match (bound(place.value), place.old.filter(|old| !old.is_null()).map(bound).transpose()) {
            (Ok(value), Ok(old)) => (value, old),
            (Err(error), _) | (_, Err(error)) => {
                self.errors.push(at.failed(format!("{error} evaluating rule: {}", rules.rules.list[0].shown())));
                return Ok(());
            }
        };
        for (rule, compiled) in rules.rules.list.iter().zip(compiled) {
            self.rule(rule, compiled, &at, (&value, old.as_ref()), &place.matched)?;
        }
        Ok(())
    }

    fn rule<'a>(
        &mut self,
        rule: &Rule,
        compiled: &'a Compiled,
        at: &Told,
        (value, old): (&cel::Value<'a>, Option<&cel::Value<'a>>),
        matched: &Matched,
    ) -> Result<(), Stop> {
        let program = match &compiled.program {
            Ok(Some(program)) => program,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.errors.push(at.failed(format!("rule compile error: {error}")));
                return Ok(());
            }
        };
        let optional = rule.optional_old_self == Some(true);
        if compiled.uses_old && old.is_none() && !optional {
            return Ok(());
        }
        let mut bindings = Activation::new();
        bindings.bind_value(VALUE, value.clone());
        match old {
            old if optional => drop(bindings.bind_value(OLD, cel::Value::Optional(old.cloned().map(Arc::new)))),
            Some(old) => drop(bindings.bind_value(OLD, old.clone())),
            None => {}
        }
        let mut budget = CostTracker::new(PER_CALL);
        let result = program.run(&bindings, &mut budget);
        if budget.actual_cost() > self.left {
            self.errors.push(at.failed(OUT_OF_BUDGET.to_owned()));
            return Err(Stop);
        }
        self.left -= budget.actual_cost();
        let fault = match result {
            Ok(cel::Value::Bool(true)) => return Ok(()),
            Ok(_) => {
                let detail = self.message(rule, compiled, at, &bindings)?;
                at.told(&compiled.field, rule.reason.as_deref(), detail)
            }
            Err(EvalError::CostLimit) => {
                let error = EvalError::CostLimit;
                let what = "no further validation rules will be run due to call cost exceeds limit for rule";
                self.errors.push(at.failed(format!("'{error}': {what}: {}", rule.shown())));
                return Err(Stop);
            }
            Err(error) => {
                self.errors.push(at.failed(evaluation(&error, rule)));
                return Ok(());
            }
        };
        // Ratcheting: a failure on an unchanged value is ignored, unless it is of a transition rule.
        if compiled.uses_old || !matched.is_same() {
            self.errors.push(fault);
        }
        Ok(())
    }

    /// Returns the message of a failed rule, evaluating `messageExpression` if there is one.
    fn message<'a>(
        &mut self,
        rule: &Rule,
        compiled: &'a Compiled,
        at: &Told,
        bindings: &Activation<'a>,
    ) -> Result<String, Stop> {
        let Some(Ok((program, _))) = &compiled.message else { return Ok(rule.told()) };
        let mut budget = CostTracker::new(PER_CALL);
        let result = program.run(bindings, &mut budget);
        let why = if budget.actual_cost() > self.left {
            "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run"
                .to_owned()
        } else if let Err(EvalError::CostLimit) = result {
            format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {:?}",
                rule.message_expression
            )
        } else {
            self.left -= budget.actual_cost();
            return Ok(match result {
                Ok(cel::Value::String(text)) => said(&text).unwrap_or_else(|| rule.told()),
                _ => rule.told(),
            });
        };
        self.errors.push(at.failed(why));
        Err(Stop)
    }
}

/// Returns a usable message; `None` if it is empty, too long or has several lines.
fn said(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

fn evaluation(error: &EvalError, rule: &Rule) -> String {
    let text = error.to_string();
    if text.starts_with("no such overload") {
        let what = "call arguments did not match a supported operator, function or macro signature for rule";
        return format!("'{text}': {what}: {}", rule.shown());
    }
    format!("{text} evaluating rule: {}", rule.shown())
}

/// Location and value that rule errors are reported for.
struct Told<'a> {
    path: &'a str,
    kind: Kind,
    value: &'a Value,
}

impl Told<'_> {
    fn place(&self, below: &str) -> String {
        match (self.path, below) {
            ("", "") => "<nil>".to_owned(),
            ("", below) => below.to_owned(),
            (path, "") => path.to_owned(),
            (path, below) => format!("{path}.{below}"),
        }
    }

    /// Builds the error of a rule that could not be evaluated.
    fn failed(&self, why: String) -> FieldError {
        FieldError::invalid(self.place(""), self.kind.name(), why)
    }

    /// Builds the error of a failed rule.
    fn told(&self, field: &str, reason: Option<&str>, detail: String) -> FieldError {
        let whole = matches!(self.kind, Kind::Object | Kind::Array);
        let bad = || if whole { BadValue::Omitted } else { BadValue::Value(self.value.clone()) };
        let fault = match reason {
            Some("FieldValueForbidden") => FieldErrorType::Forbidden,
            Some("FieldValueRequired") => FieldErrorType::Required,
            Some("FieldValueDuplicate") => {
                return FieldError::new(self.place(field), FieldErrorType::Duplicate(bad()), "");
            }
            _ => FieldErrorType::Invalid(bad()),
        };
        FieldError::new(self.place(field), fault, detail)
    }
}
