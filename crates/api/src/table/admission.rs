//! Rows of what extends the API: webhooks, admission policies, API services.

use super::{
    printer::{AGE, Column, NAME, integer, text},
    row::Row,
};
use crate::{Value, meta};

pub(super) const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks"), AGE];

pub(super) fn webhooks(row: &Row) -> Vec<Value> {
    vec![row.name(), row.count(&["webhooks"]).into(), row.age()]
}

pub(super) const VALIDATING: &[Column] = &[NAME, integer("Validations"), text("ParamKind"), AGE];

pub(super) fn validating(row: &Row) -> Vec<Value> {
    vec![row.name(), row.count(&["spec", "validations"]).into(), param_kind(row).into(), row.age()]
}

pub(super) const MUTATING: &[Column] = &[NAME, integer("Mutations"), text("ParamKind"), AGE];

pub(super) fn mutating(row: &Row) -> Vec<Value> {
    vec![row.name(), row.count(&["spec", "mutations"]).into(), param_kind(row).into(), row.age()]
}

fn param_kind(row: &Row) -> String {
    row.at(&["spec", "paramKind"]).map_or("<unset>".to_owned(), |kind| {
        format!("{}/{}", meta::text(kind, &["apiVersion"]), meta::text(kind, &["kind"]))
    })
}

pub(super) const BINDING: &[Column] = &[NAME, text("PolicyName"), text("ParamRef"), AGE];

pub(super) fn binding(row: &Row) -> Vec<Value> {
    vec![row.name(), row.text(&["spec", "policyName"]).into(), param_reference(row).into(), row.age()]
}

fn param_reference(row: &Row) -> String {
    let field = |name: &str| row.text(&["spec", "paramRef", name]);
    match (field("name"), field("namespace"), row.at(&["spec", "paramRef", "selector"])) {
        ("", _, Some(selector)) => go_selector(selector),
        ("", _, None) => "<unset>".to_owned(),
        // Whether the parameter is in a namespace cannot be told from here.
        (name, "", _) => format!("*/{name}"),
        (name, namespace, _) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go's protobuf writes it in messages.
fn go_selector(selector: &Value) -> String {
    let labels = meta::at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let mut pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    pairs.sort();
    let expression = |expression: &Value| {
        let values: Vec<&str> = meta::list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        let (key, operator) = (meta::text(expression, &["key"]), meta::text(expression, &["operator"]));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{}],}},", values.join(" "))
    };
    let expressions: String = meta::list(selector, &["matchExpressions"]).iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}",
        pairs.concat()
    )
}

pub(super) const API_SERVICE: &[Column] = &[NAME, text("Service"), text("Available"), AGE];

pub(super) fn api_service(row: &Row) -> Vec<Value> {
    let service = row.at(&["spec", "service"]).map_or("Local".to_owned(), |service| {
        format!("{}/{}", meta::text(service, &["namespace"]), meta::text(service, &["name"]))
    });
    let available = row.condition("Available").map_or("Unknown".to_owned(), |condition| {
        match (meta::text(condition, &["status"]), meta::text(condition, &["reason"])) {
            (status @ "True", _) | (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        }
    });
    vec![row.name(), service.into(), available.into(), row.age()]
}
