//! Labels and the selectors over them, as far as the tables cannot say what is right.

use super::prelude::*;
use crate::selector::LabelSelector;

/// The faults of a map of labels; all are told at the map.
pub fn labels(at: &At, e: &mut Errors) {
    for (key, value) in at.entries() {
        at.form_as(e, key, names::qualified);
        at.form_as(e, value.text(), names::label_value);
    }
}

/// The faults of a label selector; one that had values of any form may keep such.
pub fn kept_selector(at: &At, e: &mut Errors) {
    check(at, is_faulty(at.old), e);
}

/// The faults of a label selector; values of requirements may be of any form if it is loose.
pub(super) fn check(at: &At, loose: bool, e: &mut Errors) {
    rules::check(if loose { "LooseSelector" } else { "LabelSelector" }, at, e);
}

/// The faults of a node selector, loose or not.
pub(super) fn nodes(at: &At, loose: bool, e: &mut Errors) {
    rules::check(if loose { "LooseNodeSelector" } else { "NodeSelector" }, at, e);
}

/// Whether a selector has faults; none has none.
pub(super) fn is_faulty(selector: &Value) -> bool {
    rules::is_faulty("LabelSelector", &At::top(selector))
}

/// Whether a node selector has faults; none has none.
pub(super) fn is_faulty_for_nodes(selector: &Value) -> bool {
    !selector.is_null() && rules::is_faulty("NodeSelector", &At::top(selector))
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
