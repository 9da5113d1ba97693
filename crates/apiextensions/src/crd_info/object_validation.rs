//! Validation of custom resources, in upstream's order: type meta, schema, scale, embedded objects, list types, CEL
//! rules.

use api::{
    Value, meta,
    schema::ObjectWrite,
    validate::{FieldError, FieldErrorType},
};

use super::CrdInfo;
use crate::{schema_validation, structural_schema::Structural, validation_rules};

const RULES_UNCHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to \
     complete validation";

/// Validates a custom resource that is to be written in the version at `index`.
pub fn validate_object(crd: &CrdInfo, index: usize, change: ObjectWrite) -> Vec<FieldError> {
    let invalid = validate_type_meta(crd, index, change.object);
    if !invalid.is_empty() {
        return invalid;
    }
    let (root, scale) = (crd.schema(index), crd.versions[index].scale.as_ref());
    let ObjectWrite { object, old, subresource } = change;
    let mut errors = if subresource == "status" {
        validate_status(root, object, old)
    } else {
        let mut errors = schema_validation::validate_value(root, "", object, old);
        errors.extend(scale.and_then(|scale| scale.validate_spec(object)));
        errors
    };
    errors.extend(scale.map(|scale| scale.validate_status(object)).unwrap_or_default());
    if subresource.is_empty() {
        errors.extend(schema_validation::validate_embedded_resources(root, object));
    }
    if old.is_none_or(|old| schema_validation::validate_list_types(root, old).is_empty()) {
        errors.extend(schema_validation::validate_list_types(root, object));
    }
    if root.has_rules {
        if errors.iter().any(is_blocking) {
            errors.push(FieldError::invalid("<nil>", Value::Null, RULES_UNCHECKED));
        } else {
            errors.extend(validation_rules::evaluate_rules(root, object, old));
        }
    }
    errors
}

fn validate_type_meta(crd: &CrdInfo, index: usize, object: &Value) -> Vec<FieldError> {
    let expected = [("kind", crd.kind.to_owned()), ("apiVersion", crd.api_version(index))];
    let invalid = |(field, expected): &(&str, String)| {
        let actual = meta::string_at(object, &[field]);
        (actual != expected).then(|| FieldError::invalid(*field, actual, format!("must be {expected}")))
    };
    expected.iter().filter_map(invalid).collect()
}

/// Validates a write to the `status` subresource; only `.status` is checked.
fn validate_status(root: &Structural, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match (object.get("status"), root.property("status")) {
        (Some(status), Some(node)) => {
            schema_validation::validate_value(node, "status", status, old.and_then(|old| old.get("status")))
        }
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
