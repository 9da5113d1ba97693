//! Questions about access, as far as the tables cannot say what is right.

use super::prelude::*;

pub(super) const FUNCTIONS: Functions = functions! { no_metadata only_namespace };

fn no_metadata(meta: &At, e: &mut Errors) {
    empty_but_for(meta, "", "must be empty", e);
}

fn only_namespace(meta: &At, e: &mut Errors) {
    empty_but_for(meta, "namespace", "must be empty except for namespace", e);
}

/// A review has no metadata; what the server itself puts there does not count.
fn empty_but_for(meta: &At, allowed: &str, message: &str, e: &mut Errors) {
    let ignored = ["managedFields", "creationTimestamp", "uid", allowed];
    let extra = |(field, value): (&String, &Value)| !ignored.contains(&field.as_str()) && !value.is_null();
    if meta.value.as_object().into_iter().flatten().any(extra) {
        meta.invalid_struct(e, "meta/v1.ObjectMeta", message);
    }
}
