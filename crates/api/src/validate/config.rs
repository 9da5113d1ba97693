//! Validation of ConfigMaps and Secrets.

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{Errors, at::At, names, render::same};
use crate::Value;

const MOST_BYTES: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take(2).filter(|c| *c == b'=').count().min(text.len() / 4 * 3)
}

/// What is marked as immutable stays.
fn immutable(new: &At, old: Option<&At>, fields: &[&str], e: &mut Errors) {
    let Some(old) = old.filter(|old| old.get("immutable").is_true()) else { return };
    if !new.get("immutable").is_true() {
        new.get("immutable").forbidden(e, FIXED);
    }
    for field in fields {
        if !same(new.get(field).value, old.get(field).value) {
            new.get(field).forbidden(e, FIXED);
        }
    }
}

/// What is particular to a changed ConfigMap; it is told before the rest.
pub(super) fn config_map_change(new: &At, old: &At, e: &mut Errors) {
    immutable(new, Some(old), &["data", "binaryData"], e);
}

/// The faults of a ConfigMap.
pub(super) fn config_map(new: &At, _: Option<&At>, e: &mut Errors) {
    let (data, binary) = (new.get("data"), new.get("binaryData"));
    let mut size = 0;
    for (key, value) in data.entries() {
        names::config_key(key).into_iter().for_each(|fault| value.invalid_as(e, key, fault));
        if binary.get(key).exists() {
            value.invalid_as(e, key, "duplicate of key present in binaryData");
        }
        size += value.text().len();
    }
    for (key, value) in binary.entries() {
        names::config_key(key).into_iter().for_each(|fault| value.invalid_as(e, key, fault));
        size += decoded_length(value.text());
    }
    if size > MOST_BYTES {
        new.get("").too_long(e, MOST_BYTES);
    }
}

/// What is particular to a changed Secret; it is told before the rest.
pub(super) fn secret_change(new: &At, old: &At, e: &mut Errors) {
    if new.get("type").text() != old.get("type").text() {
        new.get("type").invalid_text(e, super::at::IMMUTABLE);
    }
    immutable(new, Some(old), &["data"], e);
}

/// The faults of a Secret.
pub(super) fn secret(new: &At, _: Option<&At>, e: &mut Errors) {
    let data = new.get("data");
    let mut size = 0;
    for (key, value) in data.entries() {
        names::config_key(key).into_iter().for_each(|fault| value.invalid_as(e, key, fault));
        size += decoded_length(value.text());
    }
    if size > MOST_BYTES {
        data.too_long(e, MOST_BYTES);
    }
    let need = |keys: &[&str], e: &mut Errors| {
        for key in keys.iter().filter(|key| !data.key(key).exists()) {
            data.key(key).required(e, "");
        }
    };
    match new.get("type").text() {
        "kubernetes.io/service-account-token" => {
            let meta = new.get("metadata");
            let notes = meta.get("annotations");
            notes.key("kubernetes.io/service-account.name").require(e);
        }
        "kubernetes.io/dockercfg" => json(&data.key(".dockercfg"), e),
        "kubernetes.io/dockerconfigjson" => json(&data.key(".dockerconfigjson"), e),
        "kubernetes.io/basic-auth" if !data.key("username").exists() && !data.key("password").exists() => {
            need(&["username", "password"], e);
        }
        "kubernetes.io/ssh-auth" => {
            data.key("ssh-privatekey").require(e);
        }
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"], e),
        _ => {}
    }
}

/// A file of credentials is a JSON object.
fn json(at: &At, e: &mut Errors) {
    if !at.exists() {
        return at.required(e, "");
    }
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
