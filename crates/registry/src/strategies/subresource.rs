//! Merging of writes through subresources.

use api::{Value, meta, schema::Resource};

use super::strategy_for;

/// Metadata that a client may set, besides managed fields.
pub const CLIENT_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Merges the fields that a subresource may change into the current object.
pub fn apply_subresource_update(resource: &Resource, subresource: &str, object: Value, current: &Value) -> Value {
    let mut changed = strategy_for(resource).update_subresource(subresource, object, current);
    if resource.status_only {
        copy_fields(&mut changed["metadata"], &current["metadata"], CLIENT_METADATA);
    }
    changed
}

/// The current object with metadata and status of `object`.
pub fn with_status(mut object: Value, current: &Value) -> Value {
    let mut kept = current.clone();
    copy_fields(&mut kept, &object, &["status"]);
    kept["metadata"] = object["metadata"].take();
    kept
}

/// Copies fields from another object; fields that are absent there are removed.
pub fn copy_fields(object: &mut Value, from: &Value, fields: &[&str]) {
    let map = meta::object_mut(object);
    for field in fields {
        match from.get(field) {
            Some(value) => map.insert((*field).to_owned(), value.clone()),
            None => map.remove(*field),
        };
    }
}
