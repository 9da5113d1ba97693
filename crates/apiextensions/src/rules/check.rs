//! Validates the CEL validation rules of a CRD: they must compile against the schema's types, and their estimated cost
//! is limited per rule and per schema.

use std::sync::Arc;

use api::validate::{BadValue, FieldError, FieldErrorType};
use serde_json::json;

use super::{Rule, compile::Compiled, sizes};
use crate::schema::{Bounds, Kind, ListKind, Node, Others};

/// Cost limit of one rule (upstream: `StaticEstimatedCostLimit`).
const RULE: u64 = 10_000_000;
/// Cost limit of all rules of a schema (upstream: `StaticEstimatedCRDCostLimit`).
const SCHEMA: u64 = 100_000_000;
/// Number of most expensive rules that are reported when the schema's limit is exceeded.
const TOLD: usize = 4;

/// Validates the rules of a schema; `path` is the schema's field path within the CRD.
pub fn check(root: &Arc<Node>, path: &str) -> Vec<FieldError> {
    let mut check = Check { errors: Vec::new(), total: 0, expensive: Vec::new() };
    check.node(root, path, Place { often: Some(1), lost: None });
    check.finish(path)
}

struct Check {
    errors: Vec<FieldError>,
    total: u64,
    /// Most expensive first.
    expensive: Vec<(String, u64)>,
}

#[derive(Clone, Copy)]
struct Place<'a> {
    /// Maximum number of such values in one object; `None` if unbounded.
    often: Option<u64>,
    /// Path of the enclosing list whose elements are uncorrelatable.
    lost: Option<&'a str>,
}

impl Place<'_> {
    fn below(self, node: &Node) -> Self {
        let often = self.often.zip(most_elements(node)).map(|(often, most)| often.saturating_mul(most));
        Self { often, ..self }
    }
}

fn most_elements(node: &Node) -> Option<u64> {
    let Bounds { max_items, max_properties, .. } = node.bounds();
    let bound = |most: &Option<i64>| most.map(|most| u64::try_from(most).unwrap_or(0));
    match (node.kind, &node.others) {
        (Kind::Array, _) => bound(max_items),
        (Kind::Object, Others::Node(_) | Others::Any) => bound(max_properties),
        _ => Some(1),
    }
}

impl Check {
    fn node(&mut self, node: &Arc<Node>, path: &str, place: Place) {
        if !node.ruled {
            return;
        }
        let below = place.below(node);
        if let Others::Node(inner) = &node.others {
            self.node(inner, &format!("{path}.additionalProperties"), below);
        }
        for (name, inner) in &node.properties {
            self.node(inner, &format!("{path}.properties[{name}]"), below);
        }
        if let Some(items) = &node.items {
            let lost = if matches!(node.list, ListKind::Map(..)) { below.lost } else { Some(path) };
            self.node(items, &format!("{path}.items"), Place { lost, ..below });
        }
        self.rules(node, &format!("{path}.x-kubernetes-validations"), place);
    }

    fn rules(&mut self, node: &Arc<Node>, path: &str, place: Place) {
        if node.rules.list.is_empty() {
            return;
        }
        let Some(compiled) = node.rules.compiled(node) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert \
                 structural schema to CEL declarations";
            return self.errors.push(FieldError::new(path, FieldErrorType::Internal, why));
        };
        let often = place.often.unwrap_or_else(|| sizes::most_often(node));
        for (at, (rule, compiled)) in node.rules.list.iter().zip(compiled).enumerate() {
            self.rule((rule, compiled), &format!("{path}[{at}]"), often, place.lost);
        }
    }

    fn rule(&mut self, (rule, compiled): (&Rule, &Compiled), path: &str, often: u64, lost: Option<&str>) {
        let cost = compiled.cost.saturating_mul(often);
        self.cost("estimated rule cost", format!("{path}.rule"), cost);
        if let Err(why) = &compiled.program {
            self.errors.push(FieldError::invalid(format!("{path}.rule"), shown(rule), why));
        }
        match &compiled.message {
            Some(Err(why)) => {
                self.errors.push(FieldError::invalid(format!("{path}.messageExpression"), shown(rule), why));
            }
            Some(Ok((_, cost))) => {
                self.cost("estimated messageExpression cost", format!("{path}.messageExpression"), *cost);
            }
            None => {}
        }
        match (compiled.uses_old, lost, rule.optional_old_self) {
            (true, Some(lost), _) => {
                let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
                self.errors.push(FieldError::invalid(format!("{path}.rule"), &*rule.rule, why));
            }
            (false, _, Some(given)) => {
                let why = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), given, why));
            }
            _ => {}
        }
    }

    fn cost(&mut self, what: &str, path: String, cost: u64) {
        if cost > RULE {
            self.errors.push(FieldError::forbidden(path.clone(), exceeds(what, cost, RULE)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(TOLD);
        }
    }

    fn finish(mut self, path: &str) -> Vec<FieldError> {
        if self.total > SCHEMA {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.extend(self.expensive.iter().map(|(path, _)| FieldError::forbidden(path.clone(), why)));
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(path, exceeds(what, self.total, SCHEMA)));
        }
        self.errors
    }
}

fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength \
         where arrays, maps, and strings are declared)"
    )
}

/// Formats a rule as upstream prints it in errors.
fn shown(rule: &Rule) -> BadValue {
    let field = |name: &str, value: api::Value| format!("\"{name}\":{}", escaped(&value.to_string()));
    let fields = [
        field("Rule", json!(rule.rule)),
        field("Message", json!(rule.message)),
        field("MessageExpression", json!(rule.message_expression)),
        field("Reason", json!(rule.reason)),
        field("FieldPath", json!(rule.field_path)),
        field("OptionalOldSelf", json!(rule.optional_old_self)),
    ];
    BadValue::Rendered(format!("{{{}}}", fields.join(",")))
}

/// Escapes HTML characters as Go's JSON encoder does.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
