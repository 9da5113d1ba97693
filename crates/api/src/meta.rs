//! Accessors for object metadata and fields of a JSON object, by path.

use crate::{Map, Value};

/// The annotation that counts template changes of a DaemonSet; `spec.templateGeneration` in old versions.
pub const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Returns the string at a path of field names, or "".
pub fn string_at<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    value_at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the value at a path of field names; null counts as absent.
pub fn value_at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, name| value.get(name)).filter(|value| !value.is_null())
}

/// Returns the integer at a path of field names, or 0.
pub fn integer_at(object: &Value, path: &[&str]) -> i64 {
    value_at(object, path).and_then(Value::as_i64).unwrap_or_default()
}

/// Returns the list at a path of field names, or an empty one.
pub fn list_at<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    value_at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// `metadata.name`, or "".
pub fn name(object: &Value) -> &str {
    string_at(object, &["metadata", "name"])
}

/// `metadata.namespace`, or "".
pub fn namespace(object: &Value) -> &str {
    string_at(object, &["metadata", "namespace"])
}

/// `metadata.uid`, or "".
pub fn uid(object: &Value) -> &str {
    string_at(object, &["metadata", "uid"])
}

/// Whether `metadata.deletionTimestamp` is set.
pub fn is_deleting(object: &Value) -> bool {
    value_at(object, &["metadata", "deletionTimestamp"]).is_some()
}

/// The entries of `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    list_at(object, &["metadata", "finalizers"]).iter().filter_map(Value::as_str)
}

/// Returns `metadata`, inserting it if absent. A value of another type becomes an object.
pub fn metadata_mut(object: &mut Value) -> &mut Map {
    field_mut(object, "metadata")
}

/// Returns a field of object type, inserting it if it is absent or of another type.
pub fn field_mut<'a>(object: &'a mut Value, name: &str) -> &'a mut Map {
    let field = object_mut(object).entry(name).or_insert_with(|| Value::Object(Map::new()));
    object_mut(field)
}

/// Returns the value as an object; a value of another type becomes an empty object.
pub fn object_mut(value: &mut Value) -> &mut Map {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}
