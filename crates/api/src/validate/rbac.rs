//! Roles, as far as the tables cannot say what is right.

use super::{prelude::*, selector};

pub(super) const FUNCTIONS: Functions = functions! { aggregation };

/// The faults of selectors of roles; those that had faults may keep them.
fn aggregation(rule: &At, e: &mut Errors) {
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
