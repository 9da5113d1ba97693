//! Evaluates `MutatingAdmissionPolicy` expressions to apply configurations and JSON patches.

use api::{Value as Json, meta};
use cel::{Composition, Type, Value};
use serde_json::{Map, json};

use super::{
    compiler::{Compiler, Patch, Uses},
    conditions::{Conditions, Match},
    scope::{Input, PER_POLICY, Scope, Shows},
    validating::variables,
};
use crate::{
    compile::{Compiled, Fault},
    json,
};

/// A compiled `MutatingAdmissionPolicy`.
#[derive(Debug)]
pub struct MutatingPolicy {
    /// Whether `failurePolicy` is `Ignore`.
    pub ignores_failure: bool,
    composition: Composition,
    conditions: Conditions,
    /// The mutations, in order.
    pub mutations: Vec<Mutation>,
}

/// One mutation of a policy.
#[derive(Debug)]
pub struct Mutation {
    kind: Kind,
    expression: Result<Compiled, Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Apply,
    Patch,
}

/// The evaluated mutation.
#[derive(Debug, PartialEq)]
pub enum Change {
    /// An apply configuration, merged by server-side apply.
    Apply(Json),
    /// The operations of a JSON patch.
    Patch(Json),
}

/// Returns the type that an `applyConfiguration` expression must have.
pub(super) fn applied() -> Type {
    Type::object_of(Patch("Object".to_owned()))
}

/// Returns the type that a `jsonPatch` expression must have.
pub(super) fn operations() -> Type {
    Type::list_of(Type::object_of(Patch("JSONPatch".to_owned())))
}

impl MutatingPolicy {
    /// Compiles a policy. Compile errors are reported when it is evaluated.
    pub fn compile(policy: &Json) -> Self {
        let params = meta::value_at(policy, &["spec", "paramKind"]).is_some();
        let uses = Uses { params, authorizer: true, patches: false };
        let mut compiler = Compiler::composed();
        let composition = compiler.variables(variables(policy), uses);
        let conditions = Conditions::compile(&compiler, meta::list_at(policy, &["spec", "matchConditions"]), uses);
        let patches = Uses { patches: true, ..uses };
        let mutation = |mutation: &Json| {
            let expression = |field: &str| meta::string_at(mutation, &[field, "expression"]).to_owned();
            let (kind, source, returns) = match meta::string_at(mutation, &["patchType"]) {
                "JSONPatch" => (Kind::Patch, expression("jsonPatch"), operations()),
                _ => (Kind::Apply, expression("applyConfiguration"), applied()),
            };
            Mutation { kind, expression: compiler.compile(&source, patches, &[returns]) }
        };
        Self {
            ignores_failure: meta::string_at(policy, &["spec", "failurePolicy"]) == "Ignore",
            conditions,
            mutations: meta::list_at(policy, &["spec", "mutations"]).iter().map(mutation).collect(),
            composition,
        }
    }

    /// Evaluates the match conditions on a request.
    pub fn matches(&self, input: &Input<'_>) -> Match {
        match self.conditions.check_with(input, Some(&self.composition)) {
            Match::Failed(_) if self.ignores_failure => Match::No,
            other => other,
        }
    }

    /// Evaluates one mutation; the error is the denial message.
    pub fn change(&self, mutation: &Mutation, input: &Input<'_>) -> Result<Change, String> {
        if let Err(fault) = &mutation.expression {
            return Err(fault.to_string());
        }
        let shows = Shows { authorizer: true, namespace: true };
        let mut scope = Scope::new(input, Some(&self.composition), shows, PER_POLICY);
        let value = scope.evaluate(&mutation.expression).map_err(|error| error.to_string())??;
        match mutation.kind {
            Kind::Apply => configuration(&value).map(Change::Apply),
            Kind::Patch => patch(&value).map(Change::Patch),
        }
    }
}

fn configuration(value: &Value<'_>) -> Result<Json, String> {
    if !matches!(value, Value::Struct(_)) {
        return Err(format!("unsupported return type from ApplyConfiguration expression: {}", value.type_of()));
    }
    names_fit(value)?;
    json::document(value)
}

fn patch(value: &Value<'_>) -> Result<Json, String> {
    let Value::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    list.iter().map(|operation| self::operation(&operation)).collect::<Result<Vec<_>, _>>().map(Json::Array)
}

fn operation(value: &Value<'_>) -> Result<Json, String> {
    let Value::Struct(made) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned());
    };
    let mut operation = Map::from_iter([("op".to_owned(), json!("")), ("path".to_owned(), json!(""))]);
    for (name, value) in &made.1 {
        match (&**name, value) {
            ("value", value) => {
                names_fit(value)?;
                let document = json::document(value).map_err(|why| {
                    format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {why}")
                })?;
                operation.insert("value".to_owned(), document);
            }
            ("from", Value::String(text)) if text.is_empty() => {}
            (name, Value::String(text)) => drop(operation.insert(name.to_owned(), text.to_string().into())),
            (name, other) => {
                let got = other.type_of();
                return Err(format!("unexpected type {got} for JSONPatchType '{name}' field"));
            }
        }
    }
    Ok(Json::Object(operation))
}

/// Checks that each object is constructed with the type of its field.
fn names_fit(value: &Value<'_>) -> Result<(), String> {
    let Value::Struct(made) = value else { return Ok(()) };
    let mut errors = Vec::new();
    check_names(value, &made.0, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(format!("type mismatch: {}", errors.join("\n"))) }
}

/// Maximum number of reported type mismatches.
const MOST_MISNAMED: usize = 100;

fn check_names(value: &Value<'_>, expected: &str, errors: &mut Vec<String>) {
    if errors.len() >= MOST_MISNAMED {
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
                check_names(value, &format!("{expected}.{name}"), errors);
            }
        }
        Value::List(list) => list.iter().for_each(|item| check_names(&item, expected, errors)),
        Value::Map(map) => map.entries().iter().for_each(|(_, value)| check_names(value, expected, errors)),
        _ => {}
    }
}
