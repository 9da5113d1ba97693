//! Validates list types: sets have no duplicate elements, maps no duplicate keys.

use std::collections::HashMap;

use api::{Map, Value, validate::FieldError};

use super::walk::visit_values;
use crate::structural_schema::{ListType, Structural};

/// Validates all sets and maps of an object.
pub fn validate_list_types(node: &Structural, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit_values(node, object, "", &mut |node, value, path| {
        if let Value::Array(items) = value {
            validate_list_type(&node.list_type, items, path, &mut errors);
        }
    });
    errors
}

fn validate_list_type(kind: &ListType, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    match kind {
        ListType::Atomic => {}
        ListType::Set => {
            for at in repeated_indexes(items.iter().map(Value::to_string)) {
                errors.push(FieldError::duplicate(format!("{path}[{at}]"), items[at].clone()));
            }
        }
        ListType::Map(keys) => validate_map_keys(keys, items, path, errors),
    }
}

fn validate_map_keys(keys: &[String], items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    if let Some(at) = items.iter().position(|item| !item.is_null() && !item.is_object()) {
        let message = "must be an object for an array of list-type map";
        return errors.push(FieldError::invalid(format!("{path}[{at}]"), items[at].clone(), message));
    }
    let key =
        |item: &Value| -> Map { keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect() };
    let found: Vec<Value> = items.iter().map(|item| Value::Object(key(item))).collect();
    for at in repeated_indexes(found.iter().map(Value::to_string)) {
        errors.push(FieldError::duplicate(format!("{path}[{at}]"), found[at].clone()));
    }
}

/// Returns the index of each second occurrence; further ones are not reported.
fn repeated_indexes(texts: impl Iterator<Item = String>) -> Vec<usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (at, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times += 1;
        if *times == 2 {
            out.push(at);
        }
    }
    out
}
