//! CEL expressions of `AuthenticationConfiguration`: claim mappings, claim validation rules and user validation rules.

use std::{collections::BTreeMap, sync::LazyLock};

use api::Value as Json;
use cel::{Activation, CostTracker, Environment, Schema, SchemaType, Type, Value};
use serde_json::{Number, json};

use crate::{
    compile::{Compiled, Fault, FaultKind, PER_CALL, compile},
    record::{
        Kind::{Text, TextLists, Texts},
        Record,
    },
};

const USER: Record = Record {
    name: "kubernetes.UserInfo",
    fields: &[("username", Text), ("uid", Text), ("groups", Texts), ("extra", TextLists)],
};

static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().with_variable("claims", Type::map_of(Type::String, Type::Dyn)));
static USERS: LazyLock<Environment> = LazyLock::new(|| Environment::new().with_variable("user", USER.ty()));

/// A compiled expression over `claims` or `user`.
#[derive(Debug)]
pub struct Expression {
    compiled: Compiled,
    /// Whether it refers to `claims.email`.
    pub uses_email: bool,
    /// Whether it refers to `claims.email_verified`.
    pub uses_email_verified: bool,
}

impl Expression {
    /// Compiles a claim mapping; its result type is checked at evaluation.
    pub fn mapping(source: &str) -> Result<Self, Fault> {
        Self::new(&CLAIMS, source)
    }

    /// Compiles a claim validation rule.
    pub fn claims_rule(source: &str) -> Result<Self, Fault> {
        Self::new(&CLAIMS, source)?.that_is_bool()
    }

    /// Compiles a user validation rule.
    pub fn user_rule(source: &str) -> Result<Self, Fault> {
        Self::new(&USERS, source)?.that_is_bool()
    }

    fn new(environment: &Environment, source: &str) -> Result<Self, Fault> {
        let selects =
            |field: &str| environment.compile(source).is_ok_and(|checked| checked.selects_field("claims", field));
        Ok(Self {
            compiled: compile(environment, source, &[])?,
            uses_email: selects("email"),
            uses_email_verified: selects("email_verified"),
        })
    }

    fn that_is_bool(self) -> Result<Self, Fault> {
        let is_bool = self.compiled.output.is_bool();
        let fault = || Fault { kind: FaultKind::Invalid, detail: "must evaluate to bool".to_owned() };
        is_bool.then_some(self).ok_or_else(fault)
    }

    fn evaluate<'a>(&'a self, input: &'a Input) -> Result<Value<'a>, String> {
        let mut bindings = Activation::new();
        bindings.bind_value(0, Value::from_json(&input.0, Some(&Open)).unwrap_or(Value::Null));
        let outcome = self.compiled.program.run(&bindings, &mut CostTracker::new(PER_CALL));
        outcome.map_err(|error| format!("expression '{}' resulted in error: {error}", self.compiled.source))
    }

    /// Evaluates to a string; `None` if the result has another type.
    pub fn text(&self, input: &Input) -> Result<Option<String>, String> {
        Ok(match self.evaluate(input)? {
            Value::String(text) => Some(text.to_string()),
            _ => None,
        })
    }

    /// Evaluates to one or several strings, without empty ones. The outer error is that of the evaluation.
    pub fn texts(&self, input: &Input) -> Result<Result<Vec<String>, &'static str>, String> {
        const NEITHER: &str = "expression must return a string or a list of strings";
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
                    None => return Ok(Err(NEITHER)),
                }
            }
            _ => return Ok(Err(NEITHER)),
        };
        Ok(Ok(texts.into_iter().filter(|text| !text.is_empty()).collect()))
    }

    /// Evaluates a validation rule.
    pub fn holds(&self, input: &Input) -> Result<bool, String> {
        Ok(matches!(self.evaluate(input)?, Value::Bool(true)))
    }

    /// Returns the expression's source.
    pub fn source(&self) -> &str {
        &self.compiled.source
    }
}

/// The value of `claims` or `user`.
pub struct Input(Json);

impl Input {
    /// Binds the claims of a token. All numbers become floating-point, as upstream decodes them.
    pub fn claims(claims: &Json) -> Self {
        Self(floating(claims))
    }

    /// Binds a user.
    pub fn user(name: &str, uid: &str, groups: &[String], extra: &BTreeMap<String, Vec<String>>) -> Self {
        Self(json!({"username": name, "uid": uid, "groups": groups, "extra": extra}))
    }
}

fn floating(json: &Json) -> Json {
    match json {
        Json::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Json::Null, Json::Number),
        Json::Array(list) => list.iter().map(floating).collect(),
        Json::Object(map) => Json::Object(map.iter().map(|(key, value)| (key.clone(), floating(value))).collect()),
        other => other.clone(),
    }
}

/// An object type with unknown fields, whose names may be written escaped.
#[derive(Debug)]
struct Open;

impl Schema for Open {
    fn schema_type(&self) -> SchemaType {
        SchemaType::Open
    }

    fn is_nullable(&self) -> bool {
        true
    }

    fn property_schema(&self, _: &str) -> Option<&dyn Schema> {
        Some(&Open)
    }

    fn element_schema(&self) -> Option<&dyn Schema> {
        Some(&Open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_looked_up_by_plain_and_escaped_names() {
        let claims = Input::claims(&json!({"a.b": {"c-d": "x"}, "n": 5, "list": [{"e/f": "y"}], "plain": "z"}));
        let check = |source: &str, want: &str| {
            let expression = Expression::mapping(source).unwrap();
            assert_eq!(expression.text(&claims).unwrap().as_deref(), Some(want), "{source}");
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
        let fault = |fault: Result<Expression, Fault>| fault.unwrap_err().detail;
        assert_eq!(fault(Expression::claims_rule("claims.x")), "must evaluate to bool");
        assert_eq!(fault(Expression::user_rule("user.username")), "must evaluate to bool");
        assert!(fault(Expression::user_rule("user.nope == ''")).contains("undefined field 'nope'"));
        assert!(fault(Expression::user_rule("claims.x == ''")).contains("undeclared reference to 'claims'"));
        let user = Input::user("u", "", &[], &BTreeMap::new());
        let rule = |source: &str| Expression::user_rule(source).unwrap().holds(&user);
        assert_eq!(rule("user.username == 'u' && user.uid == '' && user.groups == [] && user.extra == {}"), Ok(true));
        assert_eq!(rule("user.groups.exists(g, g == 'x')"), Ok(false));
        let uses = Expression::mapping("claims.?email.orValue('')").unwrap();
        assert!(uses.uses_email && !uses.uses_email_verified);
        assert!(Expression::mapping("[1].all(x, claims.email_verified)").unwrap().uses_email_verified);
        assert!(!Expression::mapping("claims.x.email").unwrap().uses_email);
    }
}
