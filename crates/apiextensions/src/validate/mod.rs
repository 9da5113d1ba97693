//! Validates values against a schema, with the error messages of upstream's library (kube-openapi).
//!
//! Ratcheting: a value that correlates with an equal value of the old object has no errors.

mod embedded;
mod format;
mod lists;
mod number;
mod walk;

use std::sync::Arc;

use api::{
    Map, Value,
    validate::{BadValue, FieldError, FieldErrorType},
};
pub use embedded::embedded;
pub use format::supported as supported_format;
pub use lists::lists;

use crate::{
    correlate,
    schema::{Bounds, Kind, Node, Others},
};

/// The field path of errors for which upstream has none.
const NOWHERE: &str = "<nil>";

/// Validates a value; `place` is its field path, empty for the whole object. With an old value, only changes are
/// validated.
pub fn value(node: &Node, place: &str, value: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let outcome = Check { place }.field(node, value, "", old);
    outcome.errors
}

/// Errors, and the number of passed checks: it selects the best-matching alternative of `anyOf` and `oneOf`.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    passed: usize,
}

impl Outcome {
    fn add(&mut self, error: FieldError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.passed += other.passed;
        other.errors.into_iter().for_each(|error| self.add(error));
    }
}

struct Check<'a> {
    place: &'a str,
}

impl Check<'_> {
    /// Returns the field path of an error.
    fn name(&self, path: &str) -> String {
        match (self.place, path.strip_prefix('.').unwrap_or(path)) {
            ("", "") => NOWHERE.to_owned(),
            ("", path) => path.to_owned(),
            (place, "") => place.to_owned(),
            (place, path) => format!("{place}.{path}"),
        }
    }

    fn fault(&self, path: &str, fault: FieldErrorType, message: impl Into<String>) -> FieldError {
        FieldError::new(self.name(path), fault, message)
    }

    fn invalid(&self, path: &str, bad: impl Into<BadValue>, what: &str) -> FieldError {
        self.fault(path, FieldErrorType::Invalid(bad.into()), format!("{path} in body {what}"))
    }

    fn wrong_type(&self, path: &str, wanted: &str, found: &str) -> FieldError {
        let message = format!("{path} in body must be of type {wanted}: {found:?}");
        self.fault(path, FieldErrorType::TypeInvalid(found.into()), message)
    }

    /// Builds an error without a field path of its own, as upstream's composite errors.
    fn composite(&self, message: String) -> FieldError {
        let place = if self.place.is_empty() { NOWHERE } else { self.place };
        FieldError::invalid(place, "", message)
    }

    /// Validates a field or an element; an unchanged value has no errors (ratcheting).
    fn field(&self, node: &Node, value: &Value, path: &str, old: Option<&Value>) -> Outcome {
        let mut outcome = self.value(node, value, path, old);
        if !outcome.errors.is_empty() && old == Some(value) {
            outcome.errors.clear();
        }
        outcome
    }

    fn value(&self, node: &Node, value: &Value, path: &str, old: Option<&Value>) -> Outcome {
        let mut out = Outcome::default();
        let bounds = node.bounds();
        if has_type(node) || !bounds.format.is_empty() || value.is_null() {
            match self.type_fault(node, value, path) {
                Some(fault) => out.add(fault),
                None => out.passed += 1,
            }
        }
        if value.is_null() {
            out.errors.extend(self.enumeration(bounds, value, path));
            return out;
        }
        out.passed += 2 + usize::from(has_type(node) || !bounds.format.is_empty());
        out.merge(self.combined(bounds, value, path, old));
        match value {
            Value::String(text) => {
                out.errors.extend(self.text(bounds, text, path));
                out.passed += 1 + usize::from(!bounds.format.is_empty());
                if !format::is_valid(&bounds.format, text) {
                    out.add(self.wrong_type(path, &bounds.format, text));
                }
            }
            Value::Number(_) => out.merge(self.number(node, bounds, value, path)),
            Value::Array(items) => out.merge(self.list(node, bounds, items, path, old)),
            _ => {}
        }
        out.errors.extend(self.enumeration(bounds, value, path));
        if let Value::Object(map) = value {
            out.merge(self.object(node, bounds, map, path, old));
        }
        out.passed += 1;
        out
    }

    fn type_fault(&self, node: &Node, value: &Value, path: &str) -> Option<FieldError> {
        let types: &[&str] = if node.int_or_string {
            &["integer", "string"]
        } else if node.kind == Kind::Any {
            &[]
        } else {
            &[node.kind.name()]
        };
        let (found, form) = type_of(value);
        if value.is_null() {
            let allowed = types.is_empty() || node.nullable;
            return (!allowed).then(|| self.wrong_type(path, &types.join(","), found));
        }
        let numeric = types.contains(&"number") || types.contains(&"integer");
        let whole = found == "number" && value.as_f64().is_some_and(|n| n.fract() == 0.0) && types.contains(&"integer");
        let fits = types.contains(&found) || whole || found == "integer" && types.contains(&"number");
        let format = &*node.bounds().format;
        let is_text = value.is_string() || value.is_array();
        if !(is_text || format.is_empty() || fits || form == format) {
            return Some(self.wrong_type(path, format, form));
        }
        if !numeric && !format.is_empty() && is_text {
            return None;
        }
        (!fits).then(|| self.wrong_type(path, &types.join(","), found))
    }

    /// Validates a string and returns its first error.
    fn text(&self, bounds: &Bounds, text: &str, path: &str) -> Option<FieldError> {
        let length = text.chars().count() as i64;
        if let Some(most) = bounds.max_length.filter(|most| length > *most) {
            return Some(self.fault(path, FieldErrorType::TooLong, format!("may not be more than {most} bytes")));
        }
        if let Some(least) = bounds.min_length.filter(|least| length < *least) {
            return Some(self.invalid(path, text, &format!("should be at least {least} chars long")));
        }
        let pattern = bounds.pattern.as_deref()?;
        match pattern.regex() {
            Ok(regex) if regex.is_match(text) => None,
            Ok(_) => Some(self.invalid(path, text, &format!("should match '{}'", pattern.text))),
            Err(error) => {
                let what = format!("should match '{}, but pattern is invalid: {error}'", pattern.text);
                Some(self.invalid(path, text, &what))
            }
        }
    }

    fn enumeration(&self, bounds: &Bounds, value: &Value, path: &str) -> Option<FieldError> {
        let allowed = &bounds.one_of_values;
        let same = |one: &Value| match (one.as_f64(), value.as_f64()) {
            (Some(one), Some(value)) => one == value,
            _ => one == value && !value.is_null(),
        };
        if allowed.is_empty() || allowed.iter().any(same) {
            return None;
        }
        let shown = |one: &Value| one.as_str().map_or_else(|| one.to_string(), str::to_owned);
        let texts: Vec<String> = allowed.iter().map(shown).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        Some(FieldError::not_supported(self.name(path), value.clone(), &texts))
    }

    /// Validates `allOf`, `anyOf`, `oneOf` and `not`.
    fn combined(&self, bounds: &Bounds, value: &Value, path: &str, old: Option<&Value>) -> Outcome {
        let mut out = Outcome { passed: 1, ..Outcome::default() };
        if !bounds.any_of.is_empty() {
            out.merge(self.any_of(&bounds.any_of, value, path, old));
        }
        if !bounds.one_of.is_empty() {
            out.merge(self.one_of(&bounds.one_of, value, path, old));
        }
        if !bounds.all_of.is_empty() {
            let results: Vec<Outcome> = bounds.all_of.iter().map(|node| self.value(node, value, path, old)).collect();
            let valid = results.iter().filter(|result| result.errors.is_empty()).count();
            let count = results.len();
            results.into_iter().for_each(|result| out.merge(result));
            if valid != count {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.add(self.composite(format!("{path:?} must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &bounds.not
            && self.value(not, value, path, old).errors.is_empty()
        {
            out.add(self.composite(format!("{path:?} must not validate the schema (not)")));
        }
        out
    }

    fn any_of(&self, nodes: &[Arc<Node>], value: &Value, path: &str, old: Option<&Value>) -> Outcome {
        let mut best: Option<Outcome> = None;
        for node in nodes {
            let result = self.value(node, value, path, old);
            if result.errors.is_empty() {
                return result;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        let mut out = Outcome::default();
        out.add(self.composite(format!("{path:?} must validate at least one schema (anyOf)")));
        out.merge(best.unwrap_or_default());
        out
    }

    fn one_of(&self, nodes: &[Arc<Node>], value: &Value, path: &str, old: Option<&Value>) -> Outcome {
        let (mut best, mut first, mut valid) = (None::<Outcome>, None::<Outcome>, 0);
        for node in nodes {
            let result = self.value(node, value, path, old);
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
        let mut out = Outcome::default();
        out.add(self.composite(format!("{path:?} must validate one and only one schema (oneOf). {found}")));
        out.merge(best.unwrap_or_default());
        out
    }

    fn list(&self, node: &Node, bounds: &Bounds, items: &[Value], path: &str, old: Option<&Value>) -> Outcome {
        let mut out = Outcome { passed: 2, ..Outcome::default() };
        if let Some(inner) = node.items.as_deref() {
            let before = correlate::Items::new(node, items, old);
            for (at, item) in items.iter().enumerate() {
                out.merge(self.field(inner, item, &format!("{path}[{at}]"), before.of(at)));
            }
        }
        let size = items.len() as i64;
        if let Some(least) = bounds.min_items.filter(|least| size < *least) {
            out.add(self.invalid(path, size, &format!("should have at least {least} items")));
        }
        if let Some(most) = bounds.max_items.filter(|most| size > *most) {
            let message = format!("must have at most {most} items");
            out.add(self.fault(path, FieldErrorType::TooMany(items.len()), message));
        }
        let twice = |at: usize| items[..at].contains(&items[at]);
        if bounds.unique_items && (1..items.len()).any(twice) {
            out.add(self.invalid(path, "", "shouldn't contain duplicates"));
        }
        out
    }

    fn object(&self, node: &Node, bounds: &Bounds, map: &Map, path: &str, old: Option<&Value>) -> Outcome {
        let mut out = Outcome { passed: 1, ..Outcome::default() };
        let size = map.len() as i64;
        if let Some(least) = bounds.min_properties.filter(|least| size < *least) {
            out.add(self.invalid(path, size, &format!("should have at least {least} properties")));
        }
        if let Some(most) = bounds.max_properties.filter(|most| size > *most) {
            let message = format!("must have at most {most} items");
            out.add(self.fault(path, FieldErrorType::TooMany(map.len()), message));
        }
        for (name, value) in map {
            let before = old.and_then(|old| old.get(name));
            match (node.property(name), &node.others) {
                (Some(inner), _) if inner.implied => {}
                (Some(inner), _) => {
                    let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    out.merge(self.field(inner, value, &below, before));
                }
                (None, Others::Node(inner)) => {
                    out.merge(self.field(inner, value, &format!("{path}.{name}"), before));
                }
                (None, _) => {}
            }
        }
        for name in bounds.required.iter().filter(|name| !map.contains_key(&***name)) {
            out.add(self.fault(&format!("{path}.{name}"), FieldErrorType::Required, ""));
        }
        out
    }
}

fn has_type(node: &Node) -> bool {
    node.kind != Kind::Any || node.int_or_string
}

/// Returns the JSON type of a value, and the format that Go infers for it.
fn type_of(value: &Value) -> (&'static str, &'static str) {
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

    fn check(schema: Value, given: Value, old: Option<Value>, want: &[&str]) {
        let node = crate::schema::parse(&json!({"type": "object", "properties": {"s": schema}}));
        let old = old.map(|old| json!({"s": old}));
        let faults = value(&node, "", &json!({"s": given}), old.as_ref());
        assert_eq!(faults.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    }

    #[test]
    fn faults_are_told_in_upstreams_words() {
        let wrong = "s: Invalid value: \"boolean\": s in body must be of type integer,string: \"boolean\"";
        check(json!({"x-kubernetes-int-or-string": true}), json!(true), None, &[wrong]);
        let long = "s: Too long: may not be more than 1 bytes";
        check(json!({"type": "string", "maxLength": 1}), json!("ab"), None, &[long]);
        let not = "<nil>: Invalid value: \"\": \"s\" must not validate the schema (not)";
        check(json!({"type": "string", "not": {"pattern": "a"}}), json!("ab"), None, &[not]);
        let any = [
            "<nil>: Invalid value: \"\": \"s\" must validate at least one schema (anyOf)",
            "s: Invalid value: \"c\": s in body should match 'a'",
        ];
        check(json!({"type": "string", "anyOf": [{"pattern": "a"}, {"pattern": "b"}]}), json!("c"), None, &any);
        let few = "s: Invalid value: 0: s in body should have at least 1 items";
        check(json!({"type": "array", "minItems": 1, "items": {}}), json!([]), None, &[few]);
    }

    #[test]
    fn what_did_not_change_has_no_faults() {
        let schema = || {
            json!({"type": "object", "properties": {"a": {"type": "integer", "maximum": 1},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}}}})
        };
        let old = json!({"a": 9, "l": [{"k": "x", "v": 9}, {"k": "y", "v": 8}]});
        check(schema(), json!({"a": 9, "l": [{"k": "y", "v": 8}, {"k": "x", "v": 9}]}), Some(old.clone()), &[]);
        let fault = "s.l[0].v: Invalid value: 7: s.l[0].v in body should be less than or equal to 1";
        check(schema(), json!({"a": 9, "l": [{"k": "y", "v": 7}]}), Some(old), &[fault]);
    }
}
