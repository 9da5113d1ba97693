//! Evaluates `MutatingAdmissionPolicy` expressions to apply configurations and JSON patches.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};
use serde_json::{Map, json};

use super::{
    compiler::{ExpressionCompiler, OptionalVars, PatchObjectType},
    conditions::{MatchConditions, MatchResult},
    scope::{AdmissionInput, BoundVariables, EvaluationScope, POLICY_COST_BUDGET},
    validating::policy_variables,
};
use crate::{
    compile::{CompileError, CompiledExpr, EvaluationError},
    json,
};

/// A compiled `MutatingAdmissionPolicy`.
#[derive(Debug)]
pub struct MutatingPolicy {
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    composition: Composition,
    conditions: MatchConditions,
    /// The mutations, in order.
    pub mutations: Vec<PolicyMutation>,
}

/// One mutation of a policy.
#[derive(Debug)]
pub struct PolicyMutation {
    kind: PatchType,
    expression: Result<CompiledExpr, CompileError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatchType {
    Apply,
    Patch,
}

/// The evaluated mutation.
#[derive(Debug, PartialEq)]
pub enum MutationResult {
    /// An apply configuration, merged by server-side apply.
    Apply(Json),
    /// The operations of a JSON patch.
    Patch(Json),
}

/// Returns the type that an `applyConfiguration` expression must have.
pub(super) fn apply_configuration_type() -> Type {
    Type::object_of(PatchObjectType("Object".to_owned()))
}

/// Returns the type that a `jsonPatch` expression must have.
pub(super) fn json_patch_type() -> Type {
    Type::list_of(Type::object_of(PatchObjectType("JSONPatch".to_owned())))
}

impl MutatingPolicy {
    /// Compiles a policy. Compile errors are reported when it is evaluated.
    pub fn compile(policy: &Json) -> Self {
        let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
        let uses = OptionalVars { params, authorizer: true, patches: false };
        let mut compiler = ExpressionCompiler::with_variables();
        let composition = compiler.compile_variables(policy_variables(policy), uses);
        let conditions = MatchConditions::compile(&compiler, meta::list_at(policy, &["spec", "matchConditions"]), uses);
        let patches = OptionalVars { patches: true, ..uses };
        let mutation = |mutation: &Json| {
            let expression = |field: &str| meta::string_at(mutation, &[field, "expression"]).to_owned();
            let (kind, source, returns) = match meta::string_at(mutation, &["patchType"]) {
                "JSONPatch" => (PatchType::Patch, expression("jsonPatch"), json_patch_type()),
                _ => (PatchType::Apply, expression("applyConfiguration"), apply_configuration_type()),
            };
            PolicyMutation { kind, expression: compiler.compile(&source, patches, &[returns]) }
        };
        Self {
            ignores_failure: meta::string_at(policy, &["spec", "failurePolicy"]) == "Ignore",
            conditions,
            mutations: meta::list_at(policy, &["spec", "mutations"]).iter().map(mutation).collect(),
            composition,
        }
    }

    /// Evaluates the match conditions on a request.
    pub fn match_request(&self, input: &AdmissionInput<'_>) -> MatchResult {
        match self.conditions.evaluate_with(input, Some(&self.composition)) {
            MatchResult::Failed(_) if self.ignores_failure => MatchResult::No,
            other => other,
        }
    }

    /// Evaluates one mutation; the error is the denial message.
    pub fn evaluate_mutation(
        &self,
        mutation: &PolicyMutation,
        input: &AdmissionInput<'_>,
    ) -> Result<MutationResult, EvaluationError> {
        if let Err(error) = &mutation.expression {
            return Err(EvaluationError::new(error));
        }
        let bound = BoundVariables { authorizer: true, namespace: true };
        let mut scope = EvaluationScope::new(input, Some(&self.composition), bound, POLICY_COST_BUDGET);
        let value = scope.evaluate(&mutation.expression).map_err(EvaluationError::new)??;
        match mutation.kind {
            PatchType::Apply => to_apply_configuration(&value).map(MutationResult::Apply),
            PatchType::Patch => to_json_patch(&value).map(MutationResult::Patch),
        }
    }
}

fn to_apply_configuration(value: &Value<'_>) -> Result<Json, EvaluationError> {
    if !matches!(value, Value::Struct(_)) {
        let got = value.type_of();
        return Err(EvaluationError::new(format!("unsupported return type from ApplyConfiguration expression: {got}")));
    }
    check_type_names(value)?;
    json::to_json(value).map_err(EvaluationError::new)
}

fn to_json_patch(value: &Value<'_>) -> Result<Json, EvaluationError> {
    let Value::List(list) = value else {
        return Err(EvaluationError::new("type mismatch: JSONPatchType.expression should evaluate to array"));
    };
    list.iter().map(|operation| self::to_patch_operation(&operation)).collect::<Result<Vec<_>, _>>().map(Json::Array)
}

fn to_patch_operation(value: &Value<'_>) -> Result<Json, EvaluationError> {
    let Value::Struct(made) = value else {
        return Err(EvaluationError::new(
            "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch",
        ));
    };
    let mut operation = Map::from_iter([("op".to_owned(), json!("")), ("path".to_owned(), json!(""))]);
    for (name, value) in &made.1 {
        match (&**name, value) {
            ("value", value) => {
                check_type_names(value)?;
                let document = json::to_json(value).map_err(|why| {
                    let problem = "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
                    EvaluationError::new(format!("{problem}: {why}"))
                })?;
                operation.insert("value".to_owned(), document);
            }
            ("from", Value::String(text)) if text.is_empty() => {}
            (name, Value::String(text)) => drop(operation.insert(name.to_owned(), text.to_string().into())),
            (name, other) => {
                let got = other.type_of();
                return Err(EvaluationError::new(format!("unexpected type {got} for JSONPatchType '{name}' field")));
            }
        }
    }
    Ok(Json::Object(operation))
}

/// Checks that each object is constructed with the type of its field.
fn check_type_names(value: &Value<'_>) -> Result<(), EvaluationError> {
    let Value::Struct(made) = value else { return Ok(()) };
    let mut errors = Vec::new();
    collect_type_mismatches(value, &made.0, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(EvaluationError::new(format!("type mismatch: {}", errors.join("\n")))) }
}

/// Maximum number of reported type mismatches.
const MAX_TYPE_MISMATCHES: usize = 100;

fn collect_type_mismatches(value: &Value<'_>, expected: &str, errors: &mut Vec<String>) {
    if errors.len() >= MAX_TYPE_MISMATCHES {
        return;
    }
    match value {
        Value::Struct(made) => {
            if *made.0 != *expected {
                errors.push(format!(
                    "unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                    made.0
                ));
            }
            for (name, value) in &made.1 {
                collect_type_mismatches(value, &format!("{expected}.{name}"), errors);
            }
        }
        Value::List(list) => list.iter().for_each(|item| collect_type_mismatches(&item, expected, errors)),
        Value::Map(map) => map.entries().iter().for_each(|(_, value)| collect_type_mismatches(value, expected, errors)),
        _ => {}
    }
}
