//! What writes through a subresource may change.

use api::{Value, meta, schema::Resource};

use super::of;

/// What a client may set in the metadata, besides the owners of fields.
pub const METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// The object that a change through a subresource makes.
pub fn through(resource: &Resource, subresource: &str, object: Value, current: &Value) -> Value {
    let mut changed = of(resource).through(subresource, object, current);
    if resource.status_only {
        keep(&mut changed["metadata"], &current["metadata"], METADATA);
    }
    changed
}

/// The current object with another's metadata and status.
pub fn with_status(mut object: Value, current: &Value) -> Value {
    let mut kept = current.clone();
    keep(&mut kept, &object, &["status"]);
    kept["metadata"] = object["metadata"].take();
    kept
}

/// Takes fields from another object, also when they are absent there.
pub fn keep(object: &mut Value, from: &Value, fields: &[&str]) {
    let map = meta::object_mut(object);
    for field in fields {
        match from.get(field) {
            Some(value) => map.insert((*field).to_owned(), value.clone()),
            None => map.remove(*field),
        };
    }
}
