//! Validation of ConfigMaps and Secrets beyond the rule tables.

use super::prelude::*;
use base64::{Engine, prelude::BASE64_STANDARD};

const MOST_BYTES: usize = 1024 * 1024;

/// The number of bytes that a base64 text encodes.
pub(super) fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take(2).filter(|c| *c == b'=').count().min(text.len() / 4 * 3)
}

/// Validates keys, which become file names, and returns the total size of the values.
fn validate_keys(data: &FieldCursor, size: fn(&str) -> usize, e: &mut ErrorList) -> usize {
    data.entries()
        .map(|(key, value)| {
            value.check_format_as(e, key, names::check_config_key);
            size(value.text())
        })
        .sum()
}

pub fn validate_config_keys(map: &FieldCursor, e: &mut ErrorList) {
    let (data, binary) = (map.get("data"), map.get("binaryData"));
    let text = validate_keys(&data, str::len, e);
    for (key, value) in data.entries().filter(|(key, _)| binary.get(key).exists()) {
        value.invalid_as(e, key, "duplicate of key present in binaryData");
    }
    if text + validate_keys(&binary, decoded_length, e) > MOST_BYTES {
        map.get("").too_long(e, MOST_BYTES);
    }
}

pub fn validate_secret_keys(data: &FieldCursor, e: &mut ErrorList) {
    if validate_keys(data, decoded_length, e) > MOST_BYTES {
        data.too_long(e, MOST_BYTES);
    }
}

/// Validates a Docker config file, a JSON object.
pub fn validate_credentials(at: &FieldCursor, e: &mut ErrorList) {
    let bytes = BASE64_STANDARD.decode(at.text()).unwrap_or_default();
    let fault = match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(value) => {
            let kind = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        Err(_) => match crate::json::parse(&bytes) {
            Err(error) => error.to_string(),
            Ok(_) => return,
        },
    };
    at.invalid_as(e, "<secret contents redacted>", fault);
}
