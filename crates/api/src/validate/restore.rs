//! Objects in which what may change is put back as it was: what still differs may not.

use crate::Value;

/// Sets a field of an object; nothing takes it away.
pub(in crate::validate) fn put(object: &mut Value, field: &str, value: &Value) {
    let Some(map) = object.as_object_mut() else { return };
    if value.is_null() {
        map.remove(field);
    } else {
        map.insert(field.to_owned(), value.clone());
    }
}
