//! Embedded objects say what they are, and their metadata is valid.

use api::{
    Value, meta,
    validate::{self, FieldError, names},
};

use crate::schema::{META, Node, Others};

/// The faults of all embedded objects.
pub fn embedded(node: &Node, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, object, "", &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if node.embedded {
                resource(value, path, errors);
            }
            for (name, value) in map {
                if node.is_resource() && META.contains(&name.as_str()) {
                    continue;
                }
                match (node.property(name), &node.others) {
                    (Some(inner), _) if path.is_empty() => walk(inner, value, name, errors),
                    (Some(inner), _) => walk(inner, value, &format!("{path}.{name}"), errors),
                    (None, Others::Node(inner)) => walk(inner, value, &format!("{path}[{name}]"), errors),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = node.items.as_deref() {
                items.iter().enumerate().for_each(|(at, item)| walk(inner, item, &format!("{path}[{at}]"), errors));
            }
        }
        _ => {}
    }
}

fn resource(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let place = |name: &str| format!("{path}.{name}");
    for name in ["apiVersion", "kind"] {
        if value.get(name).is_none() {
            errors.push(FieldError::required(place(name), ""));
        }
    }
    if let Some(version) = value.get("apiVersion").and_then(Value::as_str) {
        if version.is_empty() {
            errors.push(FieldError::invalid(place("apiVersion"), version, "must not be empty"));
        } else if version.matches('/').count() > 1 {
            let message = format!("unexpected GroupVersion string: {version}");
            errors.push(FieldError::invalid(place("apiVersion"), version, message));
        }
    }
    if let Some(kind) = value.get("kind").and_then(Value::as_str) {
        let faults = names::label_1035(&kind.to_lowercase());
        if kind.is_empty() {
            errors.push(FieldError::invalid(place("kind"), kind, "must not be empty"));
        } else if !faults.is_empty() {
            let message = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
            errors.push(FieldError::invalid(place("kind"), kind, message));
        }
    }
    if value.get("metadata").is_some() {
        let namespaced = !meta::namespace(value).is_empty();
        errors.extend(validate::embedded_metadata(value, namespaced).into_iter().map(|mut error| {
            error.field = place(&error.field);
            error
        }));
    }
}
