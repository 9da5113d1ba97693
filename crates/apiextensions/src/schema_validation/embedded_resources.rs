//! Validates embedded resources: `apiVersion`, `kind` and `metadata`.

use api::{
    Value, meta,
    validate::{self, FieldError, names},
};

use super::walk::visit_values;
use crate::structural_schema::Structural;

/// Validates all embedded resources of an object.
pub fn validate_embedded_resources(node: &Structural, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_values(node, object, "", &mut |node, value, path| {
        if node.embedded && value.is_object() {
            validate_resource(value, path, &mut errors);
        }
    });
    errors
}

fn validate_resource(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let field_path = |name: &str| format!("{path}.{name}");
    for name in ["apiVersion", "kind"] {
        if value.get(name).is_none() {
            errors.push(FieldError::required(field_path(name), ""));
        }
    }
    if let Some(version) = value.get("apiVersion").and_then(Value::as_str) {
        if version.is_empty() {
            errors.push(FieldError::invalid(field_path("apiVersion"), version, "must not be empty"));
        } else if version.matches('/').count() > 1 {
            let message = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(field_path("apiVersion"), version, message));
        }
    }
    if let Some(kind) = value.get("kind").and_then(Value::as_str) {
        let label_errors = names::check_1035_label(&kind.to_lowercase());
        if kind.is_empty() {
            errors.push(FieldError::invalid(field_path("kind"), kind, "must not be empty"));
        } else if !label_errors.is_empty() {
            let message = format!("may have mixed case, but should otherwise match: {}", label_errors.join(","));
            errors.push(FieldError::invalid(field_path("kind"), kind, message));
        }
    }
    if value.get("metadata").is_some() {
        let namespaced = !meta::namespace(value).is_empty();
        errors.extend(validate::validate_embedded_metadata(value, namespaced).into_iter().map(|mut error| {
            error.field = field_path(&error.field);
            error
        }));
    }
}
