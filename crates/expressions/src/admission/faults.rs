//! Validates the CEL expressions of policies and webhook configurations, as field errors in upstream's order.
//!
//! Every CEL library in use is older than the previous release, so stored and new expressions share one environment.

use api::{
    Value as Json, meta,
    validate::{FieldError, FieldErrorType as FieldFault},
};
use cel::Type;

use super::{
    compiler::{Compiler, Uses},
    mutating::{applied, operations},
};
use crate::compile::{Compiled, Fault, FaultKind};

/// Maximum length of an audit annotation's expression that is compiled, in bytes.
const LONGEST_ANNOTATION: usize = 5 * 1024;

/// Validates the expressions of a `ValidatingAdmissionPolicy`.
pub fn of_validating(policy: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = Found::default();
    let uses = head(policy, old, &mut found);
    let variables = meta::list_at(policy, &["spec", "variables"]);
    let mut compiler = if variables.is_empty() { Compiler::plain() } else { Compiler::composed() };
    found.variables(&mut compiler, variables, uses);
    for (at, validation) in meta::list_at(policy, &["spec", "validations"]).iter().enumerate() {
        let field = |name: &str| format!("spec.validations[{at}].{name}");
        let (expression, message) = (text(validation, "expression"), text(validation, "messageExpression"));
        found.check(field("expression"), expression, |source| compiler.compile(source, uses, &[Type::Bool]));
        let plain = Uses { authorizer: false, ..uses };
        found.check(field("messageExpression"), message, |source| compiler.compile(source, plain, &[Type::String]));
    }
    for (at, annotation) in meta::list_at(policy, &["spec", "auditAnnotations"]).iter().enumerate() {
        let source = text(annotation, "valueExpression");
        if source.trim().len() <= LONGEST_ANNOTATION {
            let field = format!("spec.auditAnnotations[{at}].valueExpression");
            let returns = [Type::String, Type::Null];
            found.check(field, source, |source| compiler.compile(source.trim(), uses, &returns));
        }
    }
    found.0
}

/// Validates the expressions of a `MutatingAdmissionPolicy`.
pub fn of_mutating(policy: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = Found::default();
    let uses = head(policy, old, &mut found);
    let mut compiler = Compiler::composed();
    found.variables(&mut compiler, meta::list_at(policy, &["spec", "variables"]), uses);
    let uses = Uses { patches: true, ..uses };
    for (at, mutation) in meta::list_at(policy, &["spec", "mutations"]).iter().enumerate() {
        let (field, returns) = match text(mutation, "patchType") {
            "JSONPatch" => ("jsonPatch", operations()),
            "ApplyConfiguration" => ("applyConfiguration", applied()),
            _ => continue,
        };
        let source = meta::string_at(mutation, &[field, "expression"]).trim();
        let path = format!("spec.mutations[{at}].{field}.expression");
        found.check(path, source, |source| compiler.compile(source, uses, &[returns]));
    }
    found.0
}

/// Validates the match conditions of a webhook configuration.
pub fn of_webhooks(configuration: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = Found::default();
    let hooks = meta::list_at(configuration, &["webhooks"]);
    let before = old.map_or(&[][..], |old| meta::list_at(old, &["webhooks"]));
    let same = |(new, old): (&Json, &Json)| meta::list_at(new, CONDITIONS) == meta::list_at(old, CONDITIONS);
    if old.is_some() && hooks.len() == before.len() && hooks.iter().zip(before).all(same) {
        return Vec::new();
    }
    for (at, hook) in hooks.iter().enumerate() {
        let field = format!("webhooks[{at}].matchConditions");
        found.conditions(&field, meta::list_at(hook, CONDITIONS), Uses { authorizer: true, ..Uses::default() });
    }
    found.0
}

const CONDITIONS: &[&str] = &["matchConditions"];

/// Validates match conditions if they changed; returns the declarations that the other expressions may use.
fn head(policy: &Json, old: Option<&Json>, found: &mut Found) -> Uses {
    let part = |policy: &Json, field: &str| meta::value_at(policy, &["spec", field]).cloned().unwrap_or_default();
    let same = |field: &str| old.is_some_and(|old| part(policy, field) == part(old, field));
    let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
    let uses = Uses { params, authorizer: true, patches: false };
    if !same("paramKind") || !same("matchConditions") {
        found.conditions("spec.matchConditions", meta::list_at(policy, &["spec", "matchConditions"]), uses);
    }
    uses
}

fn text<'a>(object: &'a Json, field: &str) -> &'a str {
    meta::string_at(object, &[field])
}

#[derive(Default)]
struct Found(Vec<FieldError>);

impl Found {
    fn conditions(&mut self, field: &str, conditions: &[Json], uses: Uses) {
        let compiler = Compiler::plain();
        for (at, condition) in conditions.iter().enumerate() {
            let source = text(condition, "expression").trim();
            let field = format!("{field}[{at}].expression");
            self.check(field, source, |source| compiler.compile(source, uses, &[Type::Bool]));
        }
    }

    fn variables(&mut self, compiler: &mut Compiler, variables: &[Json], uses: Uses) {
        for (at, variable) in variables.iter().enumerate() {
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            let field = format!("spec.variables[{at}].expression");
            self.check(field, source, |source| compiler.variable(name, source, uses));
        }
    }

    /// Adds the compile error of an expression; schema validation reports missing expressions.
    fn check(&mut self, field: String, source: &str, compile: impl FnOnce(&str) -> Result<Compiled, Fault>) {
        if source.trim().is_empty() {
            return;
        }
        if let Err(fault) = compile(source) {
            self.0.push(match fault.kind {
                FaultKind::Invalid => FieldError::invalid(field, source, fault.detail),
                FaultKind::Internal => FieldError::new(field, FieldFault::Internal, fault.detail),
            });
        }
    }
}

/// The order in which upstream validates fields; unlisted fields come first.
const ORDER: &[&str] = &[
    "metadata",
    "failurePolicy",
    "paramKind",
    "matchConstraints",
    "clientConfig",
    "matchConditions",
    "admissionReviewVersions",
    "variables",
    "validations",
    "auditAnnotations",
    "mutations",
    "reinvocationPolicy",
    "patchType",
    "key",
    "expression",
    "valueExpression",
    "messageExpression",
    "message",
    "reason",
    "name",
];

/// Inserts expression errors among the errors of schema validation, in upstream's order.
pub fn merge(errors: &mut Vec<FieldError>, found: Vec<FieldError>) {
    // A duplicate is reported with its element, not after all elements.
    let twice = |error: &mut FieldError| matches!(error.kind, FieldFault::Duplicate(_));
    let twice: Vec<FieldError> = errors.extract_if(.., twice).collect();
    for fault in found.into_iter().chain(twice) {
        let place = rank(&fault.field);
        let at = errors.iter().position(|error| rank(&error.field) > place).unwrap_or(errors.len());
        errors.insert(at, fault);
    }
}

/// Sort key of a field path: names by [`ORDER`], elements by their index.
fn rank(path: &str) -> Vec<(usize, usize)> {
    let step = |step: &str| {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let index = index.trim_end_matches(']').parse().map_or(0, |index: usize| index + 1);
        // Only match conditions are validated before their names.
        let early = name == "name" && !path.contains("matchConditions[");
        let known = ORDER.iter().position(|known| *known == name).filter(|_| !early);
        // Unlisted fields sort first, in webhooks even before match conditions.
        (known.map_or(0, |known| known + 1), index)
    };
    path.trim_start_matches("spec.").split('.').map(step).collect()
}

#[cfg(test)]
mod tests;
