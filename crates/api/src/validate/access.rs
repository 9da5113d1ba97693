//! Validation of roles and access reviews beyond the rule tables.

use super::{prelude::*, selector};

/// Validates cluster role selectors; invalid stored selectors are tolerated.
pub fn aggregation(rule: &At, e: &mut Errors) {
    let list = rule.get("clusterRoleSelectors");
    if list.is_empty() {
        list.required(e, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    let loose = list.before().items().any(|selector| selector::is_faulty(selector.value));
    for selector in list.items() {
        selector::check(&selector, loose, e);
        if selector::parsed(selector.value).is_err() {
            selector.invalid_as(e, Value::Null, "invalid label selector.");
        }
    }
}

/// Rejects metadata of a review, except for `allowed` and server-set fields.
pub fn empty_but_for(meta: &At, allowed: &str, e: &mut Errors) {
    let ignored = ["managedFields", "creationTimestamp", "uid", allowed];
    let extra = |(field, value): (&String, &Value)| !ignored.contains(&field.as_str()) && !value.is_null();
    if meta.value.as_object().into_iter().flatten().any(extra) {
        let except = if allowed.is_empty() { String::new() } else { format!(" except for {allowed}") };
        meta.invalid_struct(e, "meta/v1.ObjectMeta", format!("must be empty{except}"));
    }
}
