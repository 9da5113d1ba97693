//! Validation of labels and of the selectors over them.

use super::{Errors, at::At, names};
use crate::{Value, selector::LabelSelector};

/// What is said about a requirement with an operator that does not exist.
const BAD_OPERATOR: &str = "not a valid selector operator";

/// The faults of a map of labels; all are told at the map.
pub(super) fn labels(at: &At, e: &mut Errors) {
    for (key, value) in at.entries() {
        for fault in names::qualified(key) {
            at.invalid_as(e, key, fault);
        }
        for fault in names::label_value(value.text()) {
            at.invalid_as(e, value.text(), fault);
        }
    }
}

/// The faults of a label selector.
pub(super) fn selector(at: &At, e: &mut Errors) {
    lenient(at, false, e);
}

/// As [`selector`]; the values of requirements may be of any form where an older object already had such.
pub(super) fn lenient(at: &At, any_value: bool, e: &mut Errors) {
    labels(&at.get("matchLabels"), e);
    for requirement in at.get("matchExpressions").items() {
        self::requirement(&requirement, any_value, e);
    }
}

/// The faults of a requirement of a label selector.
pub(super) fn requirement(at: &At, any_value: bool, e: &mut Errors) {
    let (operator, values) = (at.get("operator"), at.get("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            values.required(e, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden(e, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        _ => operator.invalid_text(e, BAD_OPERATOR),
    }
    at.get("key").form(e, names::qualified);
    if !any_value {
        values.items().for_each(|value| value.form(e, names::label_value));
    }
}

/// Whether a selector has faults.
pub(super) fn is_faulty(selector: &Value) -> bool {
    let mut e = Vec::new();
    self::selector(&At::top(selector), &mut e);
    !e.is_empty()
}

/// A selector as it selects; `Err` for one that cannot be read. No selector at all selects nothing.
pub(super) fn parsed(selector: &Value) -> Result<Option<LabelSelector>, ()> {
    if selector.is_null() {
        return Ok(None);
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let empty = |requirement: &Value| requirement.get("values").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let faulty = expressions.into_iter().flatten().any(|requirement| {
        let listed = matches!(requirement.get("operator").and_then(Value::as_str), Some("In" | "NotIn"));
        listed == empty(requirement)
    });
    if faulty || is_faulty(selector) {
        return Err(());
    }
    LabelSelector::from_object(selector).map(Some).map_err(|_| ())
}

/// The faults of a node selector: terms of requirements on labels and fields of nodes.
pub(super) fn nodes(at: &At, any_value: bool, e: &mut Errors) {
    let terms = at.get("nodeSelectorTerms");
    if terms.is_empty() {
        terms.required(e, "must have at least one node selector term");
    }
    terms.items().for_each(|term| node_term(&term, any_value, e));
}

/// The faults of a term of a node selector.
pub(super) fn node_term(at: &At, any_value: bool, e: &mut Errors) {
    for requirement in at.get("matchExpressions").items() {
        node_labels(&requirement, any_value, e);
    }
    for requirement in at.get("matchFields").items() {
        node_fields(&requirement, e);
    }
}

fn node_labels(at: &At, any_value: bool, e: &mut Errors) {
    let (operator, values) = (at.get("operator"), at.get("values"));
    match operator.text() {
        "In" | "NotIn" => {
            if values.is_empty() {
                values.required(e, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                values.forbidden(e, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                values.required(e, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
        }
        _ => operator.invalid_text(e, BAD_OPERATOR),
    }
    at.get("key").form(e, names::qualified);
    if !any_value {
        values.items().for_each(|value| value.form(e, names::label_value));
    }
}

fn node_fields(at: &At, e: &mut Errors) {
    let (operator, values, key) = (at.get("operator"), at.get("values"), at.get("key"));
    match operator.text() {
        "In" | "NotIn" => {
            if values.len() != 1 {
                values.required(e, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
            }
        }
        _ => operator.invalid_text(e, BAD_OPERATOR),
    }
    if key.text() != "metadata.name" {
        key.invalid_text(e, "not a valid field selector key");
    } else {
        values.items().for_each(|value| value.form(e, names::subdomain));
    }
}
