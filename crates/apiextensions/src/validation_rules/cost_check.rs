//! Validates the CEL validation rules of a CRD: they must compile against the schema's types, and their estimated cost
//! is limited per rule and per schema.

use std::sync::Arc;

use api::validate::{BadValue, FieldError, FieldErrorType};
use serde_json::json;

use super::size_estimator;
use crate::structural_schema::{
    AdditionalProperties, CompiledRule, JsonType, ListType, Structural, ValidationRule, ValueValidation,
};

/// Cost limit of one rule (upstream: `StaticEstimatedCostLimit`).
const RULE_COST_LIMIT: u64 = 10_000_000;
/// Cost limit of all rules of a schema (upstream: `StaticEstimatedCRDCostLimit`).
const SCHEMA_COST_LIMIT: u64 = 100_000_000;
/// Number of most expensive rules that are reported when the schema's limit is exceeded.
const MAX_REPORTED_RULES: usize = 4;

/// Validates the rules of a schema; `path` is the schema's field path within the CRD.
pub fn check_rules(root: &Arc<Structural>, path: &str) -> Vec<FieldError> {
    let mut checker = RuleChecker { errors: Vec::new(), total: 0, expensive: Vec::new() };
    checker.check_schema(root, path, CostContext { cardinality: Some(1), uncorrelatable: None });
    checker.into_errors(path)
}

struct RuleChecker {
    errors: Vec<FieldError>,
    total: u64,
    /// Most expensive first.
    expensive: Vec<(String, u64)>,
}

#[derive(Clone, Copy)]
struct CostContext<'a> {
    /// Maximum number of such values in one object; `None` if unbounded.
    cardinality: Option<u64>,
    /// Path of the enclosing list whose elements are uncorrelatable.
    uncorrelatable: Option<&'a str>,
}

impl CostContext<'_> {
    fn descend(self, node: &Structural) -> Self {
        let cardinality =
            self.cardinality.zip(max_elements(node)).map(|(cardinality, max)| cardinality.saturating_mul(max));
        Self { cardinality, ..self }
    }
}

fn max_elements(node: &Structural) -> Option<u64> {
    let ValueValidation { max_items, max_properties, .. } = node.value_validation();
    let bound = |max: &Option<i64>| max.map(|max| u64::try_from(max).unwrap_or(0));
    match (node.kind, &node.additional_properties) {
        (JsonType::Array, _) => bound(max_items),
        (JsonType::Object, AdditionalProperties::Schema(_) | AdditionalProperties::Any) => bound(max_properties),
        _ => Some(1),
    }
}

impl RuleChecker {
    fn check_schema(&mut self, node: &Arc<Structural>, path: &str, context: CostContext) {
        if !node.has_rules {
            return;
        }
        let below = context.descend(node);
        if let AdditionalProperties::Schema(inner) = &node.additional_properties {
            self.check_schema(inner, &format!("{path}.additionalProperties"), below);
        }
        for (name, inner) in &node.properties {
            self.check_schema(inner, &format!("{path}.properties[{name}]"), below);
        }
        if let Some(items) = &node.items {
            let uncorrelatable =
                if matches!(node.list_type, ListType::Map(..)) { below.uncorrelatable } else { Some(path) };
            self.check_schema(items, &format!("{path}.items"), CostContext { uncorrelatable, ..below });
        }
        self.check_node_rules(node, &format!("{path}.x-kubernetes-validations"), context);
    }

    fn check_node_rules(&mut self, node: &Arc<Structural>, path: &str, context: CostContext) {
        if node.rules.list.is_empty() {
            return;
        }
        let Some(compiled) = node.rules.compiled(node) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert \
                 structural schema to CEL declarations";
            return self.errors.push(FieldError::new(path, FieldErrorType::Internal, why));
        };
        let cardinality = context.cardinality.unwrap_or_else(|| size_estimator::max_cardinality(node));
        for (at, (rule, compiled)) in node.rules.list.iter().zip(compiled).enumerate() {
            self.check_rule((rule, compiled), &format!("{path}[{at}]"), cardinality, context.uncorrelatable);
        }
    }

    fn check_rule(
        &mut self,
        (rule, compiled): (&ValidationRule, &CompiledRule),
        path: &str,
        cardinality: u64,
        uncorrelatable: Option<&str>,
    ) {
        let cost = compiled.cost.saturating_mul(cardinality);
        self.add_cost("estimated rule cost", format!("{path}.rule"), cost);
        if let Err(why) = &compiled.program {
            self.errors.push(FieldError::invalid(format!("{path}.rule"), format_rule(rule), why.to_string()));
        }
        match &compiled.message {
            Some(Err(why)) => {
                self.errors.push(FieldError::invalid(
                    format!("{path}.messageExpression"),
                    format_rule(rule),
                    why.to_string(),
                ));
            }
            Some(Ok((_, cost))) => {
                self.add_cost("estimated messageExpression cost", format!("{path}.messageExpression"), *cost);
            }
            None => {}
        }
        match (compiled.uses_old, uncorrelatable, rule.optional_old_self) {
            (true, Some(uncorrelatable), _) => {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelatable}"
                );
                self.errors.push(FieldError::invalid(format!("{path}.rule"), &*rule.rule, why));
            }
            (false, _, Some(given)) => {
                let why = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), given, why));
            }
            _ => {}
        }
    }

    fn add_cost(&mut self, what: &str, path: String, cost: u64) {
        if cost > RULE_COST_LIMIT {
            self.errors.push(FieldError::forbidden(path.clone(), exceeded_budget_message(what, cost, RULE_COST_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_COST_LIMIT / 100 {
            self.expensive.push((path, cost));
            self.expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.expensive.truncate(MAX_REPORTED_RULES);
        }
    }

    fn into_errors(mut self, path: &str) -> Vec<FieldError> {
        if self.total > SCHEMA_COST_LIMIT {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.errors.extend(self.expensive.iter().map(|(path, _)| FieldError::forbidden(path.clone(), why)));
            let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
            self.errors.push(FieldError::forbidden(path, exceeded_budget_message(what, self.total, SCHEMA_COST_LIMIT)));
        }
        self.errors
    }
}

fn exceeded_budget_message(what: &str, cost: u64, limit: u64) -> String {
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
fn format_rule(rule: &ValidationRule) -> BadValue {
    let field = |name: &str, value: api::Value| format!("\"{name}\":{}", escape_html(&value.to_string()));
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
fn escape_html(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
