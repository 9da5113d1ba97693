//! ConfigMaps and Secrets, as far as the tables cannot say what is right.

use super::prelude::*;
use base64::{Engine, prelude::BASE64_STANDARD};

const MOST_BYTES: usize = 1024 * 1024;

/// How many bytes base64 stands for.
pub(super) fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take(2).filter(|c| *c == b'=').count().min(text.len() / 4 * 3)
}

/// The faults of keys, which files are named after. How many bytes the values have.
fn keys(data: &At, size: fn(&str) -> usize, e: &mut Errors) -> usize {
    data.entries()
        .map(|(key, value)| {
            value.form_as(e, key, names::config_key);
            size(value.text())
        })
        .sum()
}

pub fn config_keys(map: &At, e: &mut Errors) {
    let (data, binary) = (map.get("data"), map.get("binaryData"));
    let text = keys(&data, str::len, e);
    for (key, value) in data.entries().filter(|(key, _)| binary.get(key).exists()) {
        value.invalid_as(e, key, "duplicate of key present in binaryData");
    }
    if text + keys(&binary, decoded_length, e) > MOST_BYTES {
        map.get("").too_long(e, MOST_BYTES);
    }
}

pub fn secret_keys(data: &At, e: &mut Errors) {
    if keys(data, decoded_length, e) > MOST_BYTES {
        data.too_long(e, MOST_BYTES);
    }
}

/// A file of credentials is a JSON object.
pub fn credentials(at: &At, e: &mut Errors) {
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
