//! Validates the CEL expressions of policies and webhook configurations, as field errors in upstream's order.
//!
//! Every CEL library in use is older than the previous release, so stored and new expressions share one environment.

use api::{
    Value as Json, meta,
    validate::{FieldError, FieldErrorType as FieldFault},
};
use cel::Type;

use super::{
    compiler::{ExpressionCompiler, OptionalVars},
    mutating::{apply_configuration_type, json_patch_type},
};
use crate::compile::{CompileError, CompileErrorType, CompiledExpr};

/// Maximum length of an audit annotation's expression that is compiled, in bytes.
const MAX_ANNOTATION_LENGTH: usize = 5 * 1024;

/// Validates the expressions of a `ValidatingAdmissionPolicy`.
pub fn validate_validating_policy(policy: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = ExpressionErrors::default();
    let uses = check_match_conditions(policy, old, &mut found);
    let variables = meta::list_at(policy, &["spec", "variables"]);
    let mut compiler = if variables.is_empty() {
        ExpressionCompiler::without_variables()
    } else {
        ExpressionCompiler::with_variables()
    };
    found.check_variables(&mut compiler, variables, uses);
    for (at, validation) in meta::list_at(policy, &["spec", "validations"]).iter().enumerate() {
        let field = |name: &str| format!("spec.validations[{at}].{name}");
        let (expression, message) =
            (string_field(validation, "expression"), string_field(validation, "messageExpression"));
        found.check_expression(field("expression"), expression, |source| compiler.compile(source, uses, &[Type::Bool]));
        let plain = OptionalVars { authorizer: false, ..uses };
        found.check_expression(field("messageExpression"), message, |source| {
            compiler.compile(source, plain, &[Type::String])
        });
    }
    for (at, annotation) in meta::list_at(policy, &["spec", "auditAnnotations"]).iter().enumerate() {
        let source = string_field(annotation, "valueExpression");
        if source.trim().len() <= MAX_ANNOTATION_LENGTH {
            let field = format!("spec.auditAnnotations[{at}].valueExpression");
            let returns = [Type::String, Type::Null];
            found.check_expression(field, source, |source| compiler.compile(source.trim(), uses, &returns));
        }
    }
    found.0
}

/// Validates the expressions of a `MutatingAdmissionPolicy`.
pub fn validate_mutating_policy(policy: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = ExpressionErrors::default();
    let uses = check_match_conditions(policy, old, &mut found);
    let mut compiler = ExpressionCompiler::with_variables();
    found.check_variables(&mut compiler, meta::list_at(policy, &["spec", "variables"]), uses);
    let uses = OptionalVars { patches: true, ..uses };
    for (at, mutation) in meta::list_at(policy, &["spec", "mutations"]).iter().enumerate() {
        let (field, returns) = match string_field(mutation, "patchType") {
            "JSONPatch" => ("jsonPatch", json_patch_type()),
            "ApplyConfiguration" => ("applyConfiguration", apply_configuration_type()),
            _ => continue,
        };
        let source = meta::string_at(mutation, &[field, "expression"]).trim();
        let path = format!("spec.mutations[{at}].{field}.expression");
        found.check_expression(path, source, |source| compiler.compile(source, uses, &[returns]));
    }
    found.0
}

/// Validates the match conditions of a webhook configuration.
pub fn validate_webhooks(configuration: &Json, old: Option<&Json>) -> Vec<FieldError> {
    let mut found = ExpressionErrors::default();
    let hooks = meta::list_at(configuration, &["webhooks"]);
    let before = old.map_or(&[][..], |old| meta::list_at(old, &["webhooks"]));
    let same =
        |(new, old): (&Json, &Json)| meta::list_at(new, MATCH_CONDITIONS) == meta::list_at(old, MATCH_CONDITIONS);
    if old.is_some() && hooks.len() == before.len() && hooks.iter().zip(before).all(same) {
        return Vec::new();
    }
    for (at, hook) in hooks.iter().enumerate() {
        let field = format!("webhooks[{at}].matchConditions");
        found.check_conditions(
            &field,
            meta::list_at(hook, MATCH_CONDITIONS),
            OptionalVars { authorizer: true, ..OptionalVars::default() },
        );
    }
    found.0
}

const MATCH_CONDITIONS: &[&str] = &["matchConditions"];

/// Validates match conditions if they changed; returns the declarations that the other expressions may use.
fn check_match_conditions(policy: &Json, old: Option<&Json>, found: &mut ExpressionErrors) -> OptionalVars {
    let part = |policy: &Json, field: &str| meta::value_at(policy, &["spec", field]).cloned().unwrap_or_default();
    let same = |field: &str| old.is_some_and(|old| part(policy, field) == part(old, field));
    let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
    let uses = OptionalVars { params, authorizer: true, patches: false };
    if !same("paramKind") || !same("matchConditions") {
        found.check_conditions("spec.matchConditions", meta::list_at(policy, &["spec", "matchConditions"]), uses);
    }
    uses
}

fn string_field<'a>(object: &'a Json, field: &str) -> &'a str {
    meta::string_at(object, &[field])
}

#[derive(Default)]
struct ExpressionErrors(Vec<FieldError>);

impl ExpressionErrors {
    fn check_conditions(&mut self, field: &str, conditions: &[Json], uses: OptionalVars) {
        let compiler = ExpressionCompiler::without_variables();
        for (at, condition) in conditions.iter().enumerate() {
            let source = string_field(condition, "expression").trim();
            let field = format!("{field}[{at}].expression");
            self.check_expression(field, source, |source| compiler.compile(source, uses, &[Type::Bool]));
        }
    }

    fn check_variables(&mut self, compiler: &mut ExpressionCompiler, variables: &[Json], uses: OptionalVars) {
        for (at, variable) in variables.iter().enumerate() {
            let (name, source) = (string_field(variable, "name"), string_field(variable, "expression"));
            let field = format!("spec.variables[{at}].expression");
            self.check_expression(field, source, |source| compiler.compile_variable(name, source, uses));
        }
    }

    /// Adds the compile error of an expression; schema validation reports missing expressions.
    fn check_expression(
        &mut self,
        field: String,
        source: &str,
        compile: impl FnOnce(&str) -> Result<CompiledExpr, CompileError>,
    ) {
        if source.trim().is_empty() {
            return;
        }
        if let Err(fault) = compile(source) {
            self.0.push(match fault.kind {
                CompileErrorType::Invalid => FieldError::invalid(field, source, fault.detail),
                CompileErrorType::Internal => FieldError::new(field, FieldFault::Internal, fault.detail),
            });
        }
    }
}

/// The order in which upstream validates fields; unlisted fields come first.
const FIELD_ORDER: &[&str] = &[
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
pub fn merge_errors(errors: &mut Vec<FieldError>, found: Vec<FieldError>) {
    // A duplicate is reported with its element, not after all elements.
    let twice = |error: &mut FieldError| matches!(error.kind, FieldFault::Duplicate(_));
    let twice: Vec<FieldError> = errors.extract_if(.., twice).collect();
    for fault in found.into_iter().chain(twice) {
        let place = field_rank(&fault.field);
        let at = errors.iter().position(|error| field_rank(&error.field) > place).unwrap_or(errors.len());
        errors.insert(at, fault);
    }
}

/// Sort key of a field path: names by [`FIELD_ORDER`], elements by their index.
fn field_rank(path: &str) -> Vec<(usize, usize)> {
    let step = |step: &str| {
        let (name, index) = step.split_once('[').unwrap_or((step, ""));
        let index = index.trim_end_matches(']').parse().map_or(0, |index: usize| index + 1);
        // Only match conditions are validated before their names.
        let early = name == "name" && !path.contains("matchConditions[");
        let known = FIELD_ORDER.iter().position(|known| *known == name).filter(|_| !early);
        // Unlisted fields sort first, in webhooks even before match conditions.
        (known.map_or(0, |known| known + 1), index)
    };
    path.trim_start_matches("spec.").split('.').map(step).collect()
}

#[cfg(test)]
mod tests;
