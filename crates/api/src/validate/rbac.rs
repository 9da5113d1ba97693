//! Validation of roles and access reviews beyond the rule tables.

use super::{prelude::*, selector};

/// Validates cluster role selectors; invalid stored selectors are tolerated.
pub fn validate_aggregation(rule: &FieldCursor, e: &mut ErrorList) {
    let list = rule.get("clusterRoleSelectors");
    if list.is_empty() {
        list.required(e, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    let loose = list.old_cursor().items().any(|selector| selector::is_invalid_label_selector(selector.value));
    for selector in list.items() {
        selector::check_label_selector(&selector, loose, e);
        if selector::parse_selector(selector.value).is_err() {
            selector.invalid_as(e, Value::Null, "invalid label selector.");
        }
    }
}

/// Rejects metadata of a review, except for `allowed` and server-set fields.
pub fn validate_empty_but_for(meta: &FieldCursor, allowed: &str, e: &mut ErrorList) {
    let ignored = ["managedFields", "creationTimestamp", "uid", allowed];
    let extra = |(field, value): (&String, &Value)| !ignored.contains(&field.as_str()) && !value.is_null();
    if meta.value.as_object().into_iter().flatten().any(extra) {
        let except = if allowed.is_empty() { String::new() } else { format!(" except for {allowed}") };
        meta.invalid_struct(e, "meta/v1.ObjectMeta", format!("must be empty{except}"));
    }
}
