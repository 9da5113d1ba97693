//! Validation of labels and label selectors beyond the rule tables.

use super::prelude::*;
use crate::selector::LabelSelector;

/// Validates labels; errors are reported at the map.
pub fn validate_labels(at: &FieldCursor, e: &mut ErrorList) {
    for (key, value) in at.entries() {
        at.check_format_as(e, key, names::check_qualified_name);
        at.check_format_as(e, value.text(), names::check_label_value);
    }
}

/// Validates a label selector; invalid stored values are tolerated.
pub fn validate_kept_selector(at: &FieldCursor, e: &mut ErrorList) {
    check_label_selector(at, is_invalid_label_selector(at.old), e);
}

/// Validates a label selector; with `loose`, values may have any format.
pub(super) fn check_label_selector(at: &FieldCursor, loose: bool, e: &mut ErrorList) {
    check_block(if loose { "LooseSelector" } else { "LabelSelector" }, at, e);
}

/// Validates a node selector; with `loose`, values may have any format.
pub(super) fn check_node_selector(at: &FieldCursor, loose: bool, e: &mut ErrorList) {
    check_block(if loose { "LooseNodeSelector" } else { "NodeSelector" }, at, e);
}

/// Whether a label selector is invalid.
pub(super) fn is_invalid_label_selector(selector: &Value) -> bool {
    violates_block("LabelSelector", &FieldCursor::for_create(selector))
}

/// Whether a node selector is present and invalid.
pub(super) fn is_invalid_node_selector(selector: &Value) -> bool {
    !selector.is_null() && violates_block("NodeSelector", &FieldCursor::for_create(selector))
}

/// Parses a selector; `Err` if it is invalid. An absent selector matches nothing.
pub(super) fn parse_selector(selector: &Value) -> Result<Option<LabelSelector>, ()> {
    if selector.is_null() {
        return Ok(None);
    }
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let empty = |requirement: &Value| requirement.get("values").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let faulty = expressions.into_iter().flatten().any(|requirement| {
        let listed = matches!(requirement.get("operator").and_then(Value::as_str), Some("In" | "NotIn"));
        listed == empty(requirement)
    });
    if faulty || is_invalid_label_selector(selector) {
        return Err(());
    }
    LabelSelector::from_object(selector).map(Some).map_err(|_| ())
}
