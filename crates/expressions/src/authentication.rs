//! CEL expressions of `AuthenticationConfiguration`: claim mappings, claim validation rules and user validation rules.

use std::{collections::BTreeMap, sync::LazyLock};

use api::Value as Json;
use cel::{Activation, CostTracker, Environment, Schema, SchemaType, Type, Value};
use serde_json::{Number, json};

use crate::{
    compile::{CompileError, CompileErrorType, CompiledExpr, EvaluationError, PER_CALL_LIMIT, compile_expression},
    record::{
        RecordFieldType::{Text, TextLists, Texts},
        RecordType,
    },
};

const USER: RecordType = RecordType {
    name: "kubernetes.UserInfo",
    fields: &[("username", Text), ("uid", Text), ("groups", Texts), ("extra", TextLists)],
};

static CLAIMS_ENV: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().with_variable("claims", Type::map_of(Type::String, Type::Dyn)));
static USER_ENV: LazyLock<Environment> = LazyLock::new(|| Environment::new().with_variable("user", USER.cel_type()));

/// A compiled expression over `claims` or `user`.
#[derive(Debug)]
pub struct AuthenticationExpression {
    compiled: CompiledExpr,
    /// Whether it refers to `claims.email`.
    pub uses_email: bool,
    /// Whether it refers to `claims.email_verified`.
    pub uses_email_verified: bool,
}

impl AuthenticationExpression {
    /// Compiles a claim mapping; its result type is checked at evaluation.
    pub fn compile_claim_mapping(source: &str) -> Result<Self, CompileError> {
        Self::new(&CLAIMS_ENV, source)
    }

    /// Compiles a claim validation rule.
    pub fn compile_claim_rule(source: &str) -> Result<Self, CompileError> {
        Self::new(&CLAIMS_ENV, source)?.require_bool()
    }

    /// Compiles a user validation rule.
    pub fn compile_user_rule(source: &str) -> Result<Self, CompileError> {
        Self::new(&USER_ENV, source)?.require_bool()
    }

    fn new(environment: &Environment, source: &str) -> Result<Self, CompileError> {
        let selects =
            |field: &str| environment.compile(source).is_ok_and(|checked| checked.selects_field("claims", field));
        Ok(Self {
            compiled: compile_expression(environment, source, &[])?,
            uses_email: selects("email"),
            uses_email_verified: selects("email_verified"),
        })
    }

    fn require_bool(self) -> Result<Self, CompileError> {
        let is_bool = self.compiled.output.is_bool();
        let error = || CompileError { kind: CompileErrorType::Invalid, detail: "must evaluate to bool".to_owned() };
        is_bool.then_some(self).ok_or_else(error)
    }

    fn evaluate<'a>(&'a self, input: &'a ExpressionInput) -> Result<Value<'a>, EvaluationError> {
        let mut activation = Activation::new();
        activation.bind_value(0, Value::from_json(&input.0, Some(&OpenSchema)).unwrap_or(Value::Null));
        self.compiled.evaluate(&activation, &mut CostTracker::new(PER_CALL_LIMIT))
    }

    /// Evaluates to a string; `None` if the result has another type.
    pub fn evaluate_string(&self, input: &ExpressionInput) -> Result<Option<String>, EvaluationError> {
        Ok(match self.evaluate(input)? {
            Value::String(text) => Some(text.to_string()),
            _ => None,
        })
    }

    /// Evaluates to one or several strings, without empty ones. The outer error is that of the evaluation.
    pub fn evaluate_string_list(
        &self,
        input: &ExpressionInput,
    ) -> Result<Result<Vec<String>, &'static str>, EvaluationError> {
        const NO_STRINGS: &str = "expression must return a string or a list of strings";
        let texts = match self.evaluate(input)? {
            Value::Null => Vec::new(),
            Value::String(text) => vec![text.to_string()],
            Value::List(list) => {
                let text = |value: Value<'_>| match value {
                    Value::String(text) => Some(text.to_string()),
                    _ => None,
                };
                match list.iter().map(text).collect() {
                    Some(texts) => texts,
                    None => return Ok(Err(NO_STRINGS)),
                }
            }
            _ => return Ok(Err(NO_STRINGS)),
        };
        Ok(Ok(texts.into_iter().filter(|text| !text.is_empty()).collect()))
    }

    /// Evaluates a validation rule.
    pub fn evaluate_bool(&self, input: &ExpressionInput) -> Result<bool, EvaluationError> {
        Ok(matches!(self.evaluate(input)?, Value::Bool(true)))
    }

    /// Returns the expression's source.
    pub fn source(&self) -> &str {
        &self.compiled.source
    }
}

/// The value of `claims` or `user`.
pub struct ExpressionInput(Json);

impl ExpressionInput {
    /// Binds the claims of a token. All numbers become floating-point, as upstream decodes them.
    pub fn from_claims(claims: &Json) -> Self {
        Self(float_numbers(claims))
    }

    /// Binds a user.
    pub fn from_user(name: &str, uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> Self {
        Self(json!({"username": name, "uid": uid, "groups": groups, "extra": extra}))
    }
}

fn float_numbers(json: &Json) -> Json {
    match json {
        Json::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Json::Null, Json::Number),
        Json::Array(list) => list.iter().map(float_numbers).collect(),
        Json::Object(map) => Json::Object(map.iter().map(|(key, value)| (key.clone(), float_numbers(value))).collect()),
        other => other.clone(),
    }
}

/// An object type with unknown fields, whose names may be written escaped.
#[derive(Debug)]
struct OpenSchema;

impl Schema for OpenSchema {
    fn schema_type(&self) -> SchemaType {
        SchemaType::Open
    }

    fn is_nullable(&self) -> bool {
        true
    }

    fn property_schema(&self, _: &str) -> Option<&dyn Schema> {
        Some(&OpenSchema)
    }

    fn element_schema(&self) -> Option<&dyn Schema> {
        Some(&OpenSchema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_looked_up_by_plain_and_escaped_names() {
        let claims =
            ExpressionInput::from_claims(&json!({"a.b": {"c-d": "x"}, "n": 5, "list": [{"e/f": "y"}], "plain": "z"}));
        let check = |source: &str, want: &str| {
            let expression = AuthenticationExpression::compile_claim_mapping(source).unwrap();
            assert_eq!(expression.evaluate_string(&claims).unwrap().as_deref(), Some(want), "{source}");
        };
        check("claims.a__dot__b.c__dash__d", "x");
        check("claims['a.b']['c-d']", "x");
        check("claims.list[0].e__slash__f", "y");
        check("claims.?nope.orValue('none')", "none");
        check("string(type(claims.n) == double)", "true");
        check("claims.map(k, k).sort().join(',')", "a.b,list,n,plain");
    }

    #[test]
    fn rules_are_true_or_false() {
        let fault = |fault: Result<AuthenticationExpression, CompileError>| fault.unwrap_err().detail;
        assert_eq!(fault(AuthenticationExpression::compile_claim_rule("claims.x")), "must evaluate to bool");
        assert_eq!(fault(AuthenticationExpression::compile_user_rule("user.username")), "must evaluate to bool");
        assert!(
            fault(AuthenticationExpression::compile_user_rule("user.nope == ''")).contains("undefined field 'nope'")
        );
        assert!(
            fault(AuthenticationExpression::compile_user_rule("claims.x == ''"))
                .contains("undeclared reference to 'claims'")
        );
        let user = ExpressionInput::from_user("u", "", &[], &BTreeMap::new());
        let rule = |source: &str| AuthenticationExpression::compile_user_rule(source).unwrap().evaluate_bool(&user);
        assert_eq!(rule("user.username == 'u' && user.uid == '' && user.groups == [] && user.extra == {}"), Ok(true));
        assert_eq!(rule("user.groups.exists(g, g == 'x')"), Ok(false));
        let uses = AuthenticationExpression::compile_claim_mapping("claims.?email.orValue('')").unwrap();
        assert!(uses.uses_email && !uses.uses_email_verified);
        assert!(
            AuthenticationExpression::compile_claim_mapping("[1].all(x, claims.email_verified)")
                .unwrap()
                .uses_email_verified
        );
        assert!(!AuthenticationExpression::compile_claim_mapping("claims.x.email").unwrap().uses_email);
    }
}
