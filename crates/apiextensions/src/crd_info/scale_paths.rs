//! The `scale` subresource of custom resources.

use api::{Value, meta, validate::FieldError};

/// A value of another type than a path requires; the text is upstream's.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AccessorError(String);

/// JSON paths of the `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`, such as `.spec.replicas`.
    pub spec: String,
    /// `statusReplicasPath`.
    pub status: String,
    /// `labelSelectorPath`; empty if not set.
    pub selector: String,
}

impl ScalePaths {
    pub(super) fn new(scale: &Value) -> Self {
        let text = |name: &str| meta::string_at(scale, &[name]).to_owned();
        Self { spec: text("specReplicasPath"), status: text("statusReplicasPath"), selector: text("labelSelectorPath") }
    }

    /// Splits a path into field names.
    pub fn split_path(path: &str) -> Vec<&str> {
        path.strip_prefix('.').unwrap_or(path).split('.').collect()
    }

    /// Returns the integer at a path; `None` if the field is absent.
    pub fn integer_at(object: &Value, path: &str) -> Result<Option<i64>, AccessorError> {
        match nested_value(object, path)? {
            None => Ok(None),
            Some(value) => value.as_i64().map(Some).ok_or_else(|| accessor_error(path, value, "int64")),
        }
    }

    /// Returns the string at a path; empty if the field is absent.
    pub fn string_at(object: &Value, path: &str) -> Result<String, AccessorError> {
        match nested_value(object, path)? {
            None => Ok(String::new()),
            Some(value) => value.as_str().map(str::to_owned).ok_or_else(|| accessor_error(path, value, "string")),
        }
    }

    pub(super) fn validate_spec(&self, object: &Value) -> Option<FieldError> {
        validate_replicas(object, &self.spec)
    }

    pub(super) fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = validate_replicas(object, &self.status).into_iter().collect();
        if !self.selector.is_empty()
            && let Err(why) = Self::string_at(object, &self.selector)
        {
            errors.push(FieldError::invalid(self.selector.as_str(), "", why.to_string()));
        }
        errors
    }
}

fn validate_replicas(object: &Value, path: &str) -> Option<FieldError> {
    match ScalePaths::integer_at(object, path) {
        Err(why) => Some(FieldError::invalid(path, 0, why.to_string())),
        Ok(Some(count)) if count < 0 => Some(FieldError::invalid(path, count, "should be a non-negative integer")),
        Ok(Some(count)) if count > i64::from(i32::MAX) => {
            Some(FieldError::invalid(path, count, format!("should be less than or equal to {}", i32::MAX)))
        }
        Ok(_) => None,
    }
}

fn nested_value<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, AccessorError> {
    let mut at = object;
    let steps = ScalePaths::split_path(path);
    for (depth, step) in steps.iter().enumerate() {
        if at.is_null() {
            return Ok(None);
        }
        let Some(map) = at.as_object() else {
            return Err(accessor_error(&format!(".{}", steps[..=depth].join(".")), at, "map[string]interface{}"));
        };
        match map.get(*step) {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn accessor_error(path: &str, value: &Value, wanted: &str) -> AccessorError {
    let (formatted, found) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(value) => (value.to_string(), "bool"),
        Value::Number(number) if number.is_i64() => (number.to_string(), "int64"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    AccessorError(format!("{path} accessor error: {formatted} is of the type {found}, expected {wanted}"))
}
