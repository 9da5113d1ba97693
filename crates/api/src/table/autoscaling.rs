//! Rows of autoscalers, scales and disruption budgets.

use super::{
    format::cut,
    printer::{AGE, Column, NAME, integer, text},
    row::{Row, quantity},
};
use crate::{Value, meta};

pub(super) const AUTOSCALER: &[Column] =
    &[NAME, text("Reference"), text("Targets"), text("MinPods"), text("MaxPods"), text("Replicas"), AGE];

pub(super) fn autoscaler(row: &Row) -> Vec<Value> {
    let target = ["spec", "scaleTargetRef"];
    let field = |name| row.text(&[target[0], target[1], name]);
    let least = row.at(&["spec", "minReplicas"]).map_or("<unset>".to_owned(), Value::to_string);
    vec![
        row.name(),
        format!("{}/{}", field("kind"), field("name")).into(),
        metrics(row.list(&["spec", "metrics"]), row.list(&["status", "currentMetrics"])).into(),
        least.into(),
        row.number(&["spec", "maxReplicas"]).into(),
        row.number(&["status", "currentReplicas"]).into(),
        row.age(),
    ]
}

fn metrics(specs: &[Value], statuses: &[Value]) -> String {
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown: Vec<String> =
        specs.iter().enumerate().map(|(at, spec)| metric(spec, statuses.get(at).unwrap_or(&Value::Null))).collect();
    cut(&shown, 2, shown.len(), ", ")
}

/// `current/target` of one metric.
fn metric(spec: &Value, status: &Value) -> String {
    let (field, named) = match meta::text(spec, &["type"]) {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let target = &spec[field]["target"];
    let current = meta::at(status, &[field]).map(|status| &status["current"]);
    if named {
        return format!("{}: {}", meta::text(spec, &[field, "name"]), resource(target, current));
    }
    if field == "pods" {
        return format!("{}/{}", amount(current, "averageValue", true), quantity(target.get("averageValue")));
    }
    match target.get("averageValue") {
        Some(average) => format!("{}/{} (avg)", amount(current, "averageValue", false), quantity(Some(average))),
        None => format!("{}/{}", amount(current, "value", true), quantity(target.get("value"))),
    }
}

/// What a resource is at and what it should be at: an amount, or a share in percent.
fn resource(target: &Value, current: Option<&Value>) -> String {
    if let Some(average) = target.get("averageValue") {
        return format!("{}/{}", amount(current, "averageValue", true), quantity(Some(average)));
    }
    let percent = |of: Option<&Value>, absent: &str| {
        of.and_then(|of| of["averageUtilization"].as_i64()).map_or(absent.to_owned(), |share| format!("{share}%"))
    };
    format!("{}/{}", percent(current, "<unknown>"), percent(Some(target), "<auto>"))
}

/// A current amount; one that is not reported is 0 where `zero`.
fn amount(current: Option<&Value>, field: &str, zero: bool) -> String {
    match current.map(|current| current.get(field)) {
        Some(Some(value)) => quantity(Some(value)),
        Some(None) if zero => "0".to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

pub(super) const SCALE: &[Column] = &[text("Name"), integer("Desired"), integer("Available"), AGE];

pub(super) fn scale(row: &Row) -> Vec<Value> {
    vec![row.name(), row.number(&["spec", "replicas"]).into(), row.number(&["status", "replicas"]).into(), row.age()]
}

pub(super) const DISRUPTION_BUDGET: &[Column] =
    &[NAME, text("Min Available"), text("Max Unavailable"), integer("Allowed Disruptions"), AGE];

pub(super) fn disruption_budget(row: &Row) -> Vec<Value> {
    let bound = |field: &str| match row.at(&["spec", field]) {
        Some(Value::String(text)) => text.clone(),
        Some(number) => number.to_string(),
        None => "N/A".to_owned(),
    };
    vec![
        row.name(),
        bound("minAvailable").into(),
        bound("maxUnavailable").into(),
        row.number(&["status", "disruptionsAllowed"]).into(),
        row.age(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metrics_show_what_is_and_what_should_be() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}});
        let pods = json!({"type": "Pods", "pods": {"target": {"averageValue": "1k"}}});
        let external = json!({"type": "External", "external": {"target": {"averageValue": "5"}}});
        let now = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 20}}});
        assert_eq!(metrics(std::slice::from_ref(&cpu), &[now]), "cpu: 20%/80%");
        assert_eq!(metrics(&[pods, external, cpu], &[]), "<unknown>/1k, <unknown>/5 (avg) + 1 more...");
        assert_eq!(metrics(&[], &[]), "<none>");
    }
}
