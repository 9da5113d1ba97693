//! Validates values against a schema, with the error messages of upstream's library (kube-openapi).
//!
//! Ratcheting: a value that correlates with an equal value of the old object has no errors.

mod embedded_resources;
mod list_types;
mod number;
mod walk;

use std::sync::Arc;

use api::{
    Map, Value,
    validate::{BadValue, FieldError, FieldErrorType},
};
pub use embedded_resources::validate_embedded_resources;
pub use list_types::validate_list_types;

use crate::{
    correlation, format,
    structural_schema::{AdditionalProperties, JsonType, Structural, ValueValidation},
};

/// The field path of errors for which upstream has none.
const NIL_PATH: &str = "<nil>";

/// Validates a value; `place` is its field path, empty for the whole object. With an old value, only changes are
/// validated.
pub fn validate_value(node: &Structural, root_path: &str, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let outcome = SchemaValidator { root_path }.validate_changed(node, value, "", old);
    outcome.errors
}

/// Errors, and the number of passed checks: it selects the best-matching alternative of `anyOf` and `oneOf`.
#[derive(Default)]
struct ValidationResult {
    errors: Vec<FieldError>,
    passed: usize,
}

impl ValidationResult {
    fn add_error(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: ValidationResult) {
        self.passed += other.passed;
        other.errors.into_iter().for_each(|error| self.add_error(error));
    }
}

struct SchemaValidator<'a> {
    root_path: &'a str,
}

impl SchemaValidator<'_> {
    /// Returns the field path of an error.
    fn field_path(&self, path: &str) -> String {
        match (self.root_path, path.strip_prefix('.').unwrap_or(path)) {
            ("", "") => NIL_PATH.to_owned(),
            ("", path) => path.to_owned(),
            (root_path, "") => root_path.to_owned(),
            (root_path, path) => format!("{root_path}.{path}"),
        }
    }

    fn new_error(&self, path: &str, kind: FieldErrorType, message: impl Into<String>) -> FieldError {
        FieldError::new(self.field_path(path), kind, message)
    }

    fn new_invalid(&self, path: &str, bad: impl Into<BadValue>, what: &str) -> FieldError {
        self.new_error(path, FieldErrorType::Invalid(bad.into()), format!("{path} in body {what}"))
    }

    fn new_type_error(&self, path: &str, wanted: &str, found: &str) -> FieldError {
        let message = format!("{path} in body must be of type {wanted}: {found:?}");
        self.new_error(path, FieldErrorType::TypeInvalid(found.into()), message)
    }

    /// Builds an error without a field path of its own, as upstream's composite errors.
    fn new_composite_error(&self, message: String) -> FieldError {
        let root_path = if self.root_path.is_empty() { NIL_PATH } else { self.root_path };
        FieldError::invalid(root_path, "", message)
    }

    /// Validates a field or an element; an unchanged value has no errors (ratcheting).
    fn validate_changed(&self, node: &Structural, value: &Value, path: &str, old: Option<&Value>) -> ValidationResult {
        let mut outcome = self.validate_node(node, value, path, old);
        if !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn validate_node(&self, node: &Structural, value: &Value, path: &str, old: Option<&Value>) -> ValidationResult {
        let mut out = ValidationResult::default();
        let validation = node.value_validation();
        if has_type(node) || !validation.format.is_empty() || value.is_null() {
            match self.validate_type(node, value, path) {
                Some(error) => out.add_error(error),
                None => out.passed += 1,
            }
        }
        if value.is_null() {
            out.errors.extend(self.validate_enum(validation, value, path));
            return out;
        }
        out.passed += 2 + usize::from(has_type(node) || !validation.format.is_empty());
        out.merge(self.validate_combinators(validation, value, path, old));
        match value {
            Value::String(text) => {
                out.errors.extend(self.validate_string(validation, text, path));
                out.passed += 1 + usize::from(!validation.format.is_empty());
                if !format::is_valid_format(&validation.format, text) {
                    out.add_error(self.new_type_error(path, &validation.format, text));
                }
            }
            Value::Number(_) => out.merge(self.validate_number(node, validation, value, path)),
            Value::Array(items) => out.merge(self.validate_list(node, validation, items, path, old)),
            _ => {}
        }
        out.errors.extend(self.validate_enum(validation, value, path));
        if let Value::Object(map) = value {
            out.merge(self.validate_object(node, validation, map, path, old));
        }
        out.passed += 1;
        out
    }

    fn validate_type(&self, node: &Structural, value: &Value, path: &str) -> Option<FieldError> {
        let types: &[&str] = if node.int_or_string {
            &["integer", "string"]
        } else if node.kind == JsonType::Any {
            &[]
        } else {
            &[node.kind.name()]
        };
        let (found, form) = json_type(value);
        if value.is_null() {
            let allowed = types.is_empty() || node.nullable;
            return (!allowed).then(|| self.new_type_error(path, &types.join(","), found));
        }
        let numeric = types.contains(&"number") || types.contains(&"integer");
        let whole = found == "number" && value.as_f64().is_some_and(|n| n.fract() == 0.0) && types.contains(&"integer");
        let fits = types.contains(&found) || whole || found == "integer" && types.contains(&"number");
        let format = &*node.value_validation().format;
        let is_text = value.is_string() || value.is_array();
        if !(is_text || format.is_empty() || fits || form == format) {
            return Some(self.new_type_error(path, format, form));
        }
        if !numeric && !format.is_empty() && is_text {
            return None;
        }
        (!fits).then(|| self.new_type_error(path, &types.join(","), found))
    }

    /// Validates a string and returns its first error.
    fn validate_string(&self, validation: &ValueValidation, text: &str, path: &str) -> Option<FieldError> {
        let length = text.chars().count() as i64;
        if let Some(most) = validation.max_length.filter(|most| length > *most) {
            return Some(self.new_error(path, FieldErrorType::TooLong, format!("may not be more than {most} bytes")));
        }
        if let Some(least) = validation.min_length.filter(|least| length < *least) {
            return Some(self.new_invalid(path, text, &format!("should be at least {least} chars long")));
        }
        let pattern = validation.pattern.as_deref()?;
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => None,
            Ok(_) => Some(self.new_invalid(path, text, &format!("should match '{}'", pattern.text))),
            Err(error) => {
                let what = format!("should match '{}, but pattern is invalid: {error}'", pattern.text);
                Some(self.new_invalid(path, text, &what))
            }
        }
    }

    fn validate_enum(&self, validation: &ValueValidation, value: &Value, path: &str) -> Option<FieldError> {
        let allowed = &validation.enumeration;
        let same = |one: &Value| match (one.as_f64(), value.as_f64()) {
            (Some(one), Some(value)) => one == value,
            _ => one == value && !value.is_null(),
        };
        if allowed.is_empty() || allowed.iter().any(same) {
            return None;
        }
        let format_value = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
        let texts: Vec<String> = allowed.iter().map(format_value).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Some(FieldError::not_supported(self.field_path(path), value.clone(), &texts))
    }

    /// Validates `allOf`, `anyOf`, `oneOf` and `not`.
    fn validate_combinators(
        &self,
        validation: &ValueValidation,
        value: &Value,
        path: &str,
        old: Option<&Value>,
    ) -> ValidationResult {
        let mut out = ValidationResult { passed: 1, ..ValidationResult::default() };
        if !validation.any_of.is_empty() {
            out.merge(self.validate_any_of(&validation.any_of, value, path, old));
        }
        if !validation.one_of.is_empty() {
            out.merge(self.validate_one_of(&validation.one_of, value, path, old));
        }
        if !validation.all_of.is_empty() {
            let results: Vec<ValidationResult> =
                validation.all_of.iter().map(|node| self.validate_node(node, value, path, old)).collect();
            let valid = results.iter().filter(|result| result.errors.is_empty()).count();
            let count = results.len();
            results.into_iter().for_each(|result| out.merge(result));
            if valid != count {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.add_error(
                    self.new_composite_error(format!("{path:?} must validate all the schemas (allOf){none}")),
                );
            }
        }
        if let Some(not) = &validation.not
            && self.validate_node(not, value, path, old).errors.is_empty()
        {
            out.add_error(self.new_composite_error(format!("{path:?} must not validate the schema (not)")));
        }
        out
    }

    fn validate_any_of(
        &self,
        nodes: &[Arc<Structural>],
        value: &Value,
        path: &str,
        old: Option<&Value>,
    ) -> ValidationResult {
        let mut best: Option<ValidationResult> = None;
        for node in nodes {
            let result = self.validate_node(node, value, path, old);
            if result.errors.is_empty() {
                return result;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        let mut out = ValidationResult::default();
        out.add_error(self.new_composite_error(format!("{path:?} must validate at least one schema (anyOf)")));
        out.merge(best.unwrap_or_default());
        out
    }

    fn validate_one_of(
        &self,
        nodes: &[Arc<Structural>],
        value: &Value,
        path: &str,
        old: Option<&Value>,
    ) -> ValidationResult {
        let (mut best, mut first, mut valid) = (None::<ValidationResult>, None::<ValidationResult>, 0);
        for node in nodes {
            let result = self.validate_node(node, value, path, old);
            if result.errors.is_empty() {
                (valid, best) = (valid + 1, None);
                first = first.or(Some(result));
            } else if valid == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        if valid == 1 {
            return first.unwrap_or_default();
        }
        let found =
            if valid == 0 { "Found none valid".to_owned() } else { format!("Found {valid} valid alternatives") };
        let mut out = ValidationResult::default();
        out.add_error(
            self.new_composite_error(format!("{path:?} must validate one and only one schema (oneOf). {found}")),
        );
        out.merge(best.unwrap_or_default());
        out
    }

    fn validate_list(
        &self,
        node: &Structural,
        validation: &ValueValidation,
        items: &[Value],
        path: &str,
        old: Option<&Value>,
    ) -> ValidationResult {
        let mut out = ValidationResult { passed: 2, ..ValidationResult::default() };
        if let Some(inner) = node.items.as_deref() {
            let before = correlation::CorrelatedItems::new(node, items, old);
            for (at, item) in items.iter().enumerate() {
                out.merge(self.validate_changed(inner, item, &format!("{path}[{at}]"), before.old_item(at)));
            }
        }
        let size = items.len() as i64;
        if let Some(least) = validation.min_items.filter(|least| size < *least) {
            out.add_error(self.new_invalid(path, size, &format!("should have at least {least} items")));
        }
        if let Some(most) = validation.max_items.filter(|most| size > *most) {
            let message = format!("must have at most {most} items");
            out.add_error(self.new_error(path, FieldErrorType::TooMany(items.len()), message));
        }
        let twice = |at: usize| items[..at].contains(&items[at]);
        if validation.unique_items && (1..items.len()).any(twice) {
            out.add_error(self.new_invalid(path, "", "shouldn't contain duplicates"));
        }
        out
    }

    fn validate_object(
        &self,
        node: &Structural,
        validation: &ValueValidation,
        map: &Map,
        path: &str,
        old: Option<&Value>,
    ) -> ValidationResult {
        let mut out = ValidationResult { passed: 1, ..ValidationResult::default() };
        let size = map.len() as i64;
        if let Some(least) = validation.min_properties.filter(|least| size < *least) {
            out.add_error(self.new_invalid(path, size, &format!("should have at least {least} properties")));
        }
        if let Some(most) = validation.max_properties.filter(|most| size > *most) {
            let message = format!("must have at most {most} items");
            out.add_error(self.new_error(path, FieldErrorType::TooMany(map.len()), message));
        }
        for (name, value) in map {
            let before = old.and_then(|old| old.get(name));
            match (node.property(name), &node.additional_properties) {
                (Some(inner), _) if inner.implied => {}
                (Some(inner), _) => {
                    let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    out.merge(self.validate_changed(inner, value, &below, before));
                }
                (None, AdditionalProperties::Schema(inner)) => {
                    out.merge(self.validate_changed(inner, value, &format!("{path}.{name}"), before));
                }
                (None, _) => {}
            }
        }
        for name in validation.required.iter().filter(|name| !map.contains_key(&***name)) {
            out.add_error(self.new_error(&format!("{path}.{name}"), FieldErrorType::Required, ""));
        }
        out
    }
}

fn has_type(node: &Structural) -> bool {
    node.kind != JsonType::Any || node.int_or_string
}

/// Returns the JSON type of a value, and the format that Go infers for it.
fn json_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn assert_errors(schema: Value, value: Value, old: Option<Value>, want: &[&str]) {
        let node = crate::structural_schema::parse_schema(&json!({"type": "object", "properties": {"s": schema}}));
        let old = old.map(|old| json!({"s": old}));
        let errors = validate_value(&node, "", &json!({"s": value}), old.as_ref());
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn errors_match_upstream() {
        let wrong = "s: Invalid value: \"boolean\": s in body must be of type integer,string: \"boolean\"";
        assert_errors(json!({"x-kubernetes-int-or-string": true}), json!(true), None, &[wrong]);
        let long = "s: Too long: may not be more than 1 bytes";
        assert_errors(json!({"type": "string", "maxLength": 1}), json!("ab"), None, &[long]);
        let not = "<nil>: Invalid value: \"\": \"s\" must not validate the schema (not)";
        assert_errors(json!({"type": "string", "not": {"pattern": "a"}}), json!("ab"), None, &[not]);
        let any = [
            "<nil>: Invalid value: \"\": \"s\" must validate at least one schema (anyOf)",
            "s: Invalid value: \"c\": s in body should match 'a'",
        ];
        assert_errors(json!({"type": "string", "anyOf": [{"pattern": "a"}, {"pattern": "b"}]}), json!("c"), None, &any);
        let few = "s: Invalid value: 0: s in body should have at least 1 items";
        assert_errors(json!({"type": "array", "minItems": 1, "items": {}}), json!([]), None, &[few]);
    }

    #[test]
    fn unchanged_values_are_not_validated() {
        let schema = || {
            json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 1},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}}}})
        };
        let old = json!({"a": 9, "l": [{"k": "x", "v": 9}, {"k": "y", "v": 8}]});
        assert_errors(schema(), json!({"a": 9, "l": [{"k": "y", "v": 8}, {"k": "x", "v": 9}]}), Some(old.clone()), &[]);
        let error = "s.l[0].v: Invalid value: 7: s.l[0].v in body should be less than or equal to 1";
        assert_errors(schema(), json!({"a": 9, "l": [{"k": "y", "v": 7}]}), Some(old), &[error]);
    }
}
