//! Helper for update validation: mutable fields are reset before comparing objects.

use crate::Value;

/// Sets a field of an object; null removes it.
pub(in crate::validate) fn set_or_remove(object: &mut Value, field: &str, value: &Value) {
    let Some(map) = object.as_object_mut() else { return };
    if value.is_null() {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), value.clone());
    }
}
