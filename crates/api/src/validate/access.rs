//! Roles and questions about access, as far as the tables cannot say what is right.

use super::{prelude::*, selector};

/// The faults of selectors of roles; those that had faults may keep them.
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

/// A review has no metadata, but for what is allowed and what the server itself puts there.
pub fn empty_but_for(meta: &At, allowed: &str, e: &mut Errors) {
    let ignored = ["managedFields", "creationTimestamp", "uid", allowed];
    let extra = |(field, value): (&String, &Value)| !ignored.contains(&field.as_str()) && !value.is_null();
    if meta.value.as_object().into_iter().flatten().any(extra) {
        let except = if allowed.is_empty() { String::new() } else { format!(" except for {allowed}") };
        meta.invalid_struct(e, "meta/v1.ObjectMeta", format!("must be empty{except}"));
    }
}
