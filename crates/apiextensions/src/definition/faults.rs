//! Validation of custom resources, in upstream's order: type meta, schema, scale, embedded objects, list types, CEL
//! rules.

use api::{
    Value, meta,
    schema::ObjectWrite,
    validate::{FieldError, FieldErrorType},
};

use super::Version;
use crate::{rules, validate};

const UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to \
     complete validation";

/// Validates a custom resource that is to be written.
pub fn faults(version: &Version, change: ObjectWrite) -> Vec<FieldError> {
    let wrong = wrong_type(version, change.object);
    if !wrong.is_empty() {
        return wrong;
    }
    let (root, scale) = (version.schema(), version.scale());
    let ObjectWrite { object, old, subresource } = change;
    let mut errors = if subresource == "status" {
        status(version, object, old)
    } else {
        let mut errors = validate::value(root, "", object, old);
        errors.extend(scale.and_then(|scale| scale.spec_fault(object)));
        errors
    };
    errors.extend(scale.map(|scale| scale.status_faults(object)).unwrap_or_default());
    if subresource.is_empty() {
        errors.extend(validate::embedded(root, object));
    }
    if old.is_none_or(|old| validate::lists(root, old).is_empty()) {
        errors.extend(validate::lists(root, object));
    }
    if root.ruled {
        if errors.iter().any(is_blocking) {
            errors.push(FieldError::invalid("<nil>", Value::Null, UNCHECKED));
        } else {
            errors.extend(rules::run(root, object, old));
        }
    }
    errors
}

fn wrong_type(version: &Version, object: &Value) -> Vec<FieldError> {
    let definition = &version.definition;
    let wanted = [("kind", definition.kind.to_owned()), ("apiVersion", version.api_version())];
    let wrong = |(field, wanted): &(&str, String)| {
        let given = meta::string_at(object, &[field]);
        (given != wanted).then(|| FieldError::invalid(*field, given, format!("must be {wanted}")))
    };
    wanted.iter().filter_map(wrong).collect()
}

/// Validates a write to the `status` subresource; only `.status` is checked.
fn status(version: &Version, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match (object.get("status"), version.schema().property("status")) {
        (Some(status), Some(node)) => validate::value(node, "status", status, old.and_then(|old| old.get("status"))),
        _ => Vec::new(),
    }
}

/// Whether the error prevents CEL rules from running, because values may not have their declared types.
fn is_blocking(error: &FieldError) -> bool {
    matches!(
        error.kind,
        FieldErrorType::NotSupported(_)
            | FieldErrorType::Required
            | FieldErrorType::TooLong
            | FieldErrorType::TooMany(_)
            | FieldErrorType::TypeInvalid(_)
    )
}
