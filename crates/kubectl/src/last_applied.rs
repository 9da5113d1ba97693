//! The annotation with the configuration that was applied last.

use api::Value;

use crate::object;
pub use crate::object::LAST_APPLIED;

/// The content of the annotation for an object.
pub fn last_applied_text(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    format!("{}\n", api::json::escape_html(object.to_string()))
}

/// Sets the annotation.
pub fn set_last_applied(object: &mut Value) {
    // The annotations are part of the saved object even when they are empty.
    if object.pointer("/metadata/annotations").is_none_or(Value::is_null) {
        object::set_path(object, "metadata.annotations", serde_json::json!({}));
    }
    let text = last_applied_text(object);
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
}

/// Sets the annotation on an object of a known type; it holds what Go's struct encodes to.
pub fn set_typed_last_applied(object: &mut Value) {
    if api::json_encoder::declared_type(object).is_none() {
        return set_last_applied(object);
    }
    let encoded = api::json_encoder::encode_object(object);
    let text = format!("{}\n", api::json::escape_html(String::from_utf8_lossy(&encoded).into_owned()));
    if object.pointer("/metadata/annotations").is_none_or(Value::is_null) {
        object::set_path(object, "metadata.annotations", serde_json::json!({}));
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAST_APPLIED.to_owned(), text.into());
    }
}
