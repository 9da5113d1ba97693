//! What may differ between a recorded answer and ours is made equal here, as the recording's own replay does it.

use serde_json::Value;

/// What the server makes up, or takes from elsewhere.
const VOLATILE: &[&str] = &[
    "uid",
    "creationTimestamp",
    "resourceVersion",
    "time",
    "deletionTimestamp",
    "lastTransitionTime",
    "continue",
    "remainingItemCount",
    "token",
    "expirationTimestamp",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
];
/// Lists whose order says nothing.
const UNORDERED: &[&str] = &["managedFields", "causes"];

/// A value without what may differ.
pub fn steady(value: &Value) -> Value {
    normal(value, "")
}

fn normal(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, value)| !VOLATILE.contains(&name.as_str()) || value.is_object());
            kept.map(|(name, value)| (name.clone(), normal(value, name))).collect()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(|item| normal(item, name)).collect();
            if UNORDERED.contains(&name) {
                items.sort_by_key(Value::to_string);
            }
            if name == "columnDefinitions" {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(|column| drop(column.remove("description")));
            }
            if name == "cells" {
                items.iter_mut().filter(|cell| is_age(cell)).for_each(|cell| *cell = "<age>".into());
            }
            Value::Array(items)
        }
        Value::String(text) => words(text).into(),
        other => other.clone(),
    }
}

/// `17s`, `5m3s`, `<unknown>`.
fn is_age(cell: &Value) -> bool {
    let Some(text) = cell.as_str() else { return false };
    let is_unit = |c: char| "smhd".contains(c);
    text == "<unknown>"
        || text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(is_unit)
            && text.chars().all(|c| c.is_ascii_digit() || is_unit(c))
}

fn words(text: &str) -> String {
    let text = masked(text, "dddd-dd-ddTdd:dd:ddZ", "<time>");
    let text = masked(&text, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh", "<uid>");
    let text = after(&text, "kube-api-access-", |c| c.is_ascii_alphanumeric());
    let text = after(&text, "current: ", |c| c.is_ascii_digit());
    after(&text, "in record (", |c| c.is_ascii_digit())
}

/// Replaces what looks like the mask: `d` a digit, `h` a hexadecimal digit, anything else itself.
fn masked(text: &str, mask: &str, by: &str) -> String {
    let fits = |part: &[u8]| {
        part.iter().zip(mask.bytes()).all(|(byte, mask)| match mask {
            b'd' => byte.is_ascii_digit(),
            b'h' => byte.is_ascii_hexdigit(),
            other => *byte == other,
        })
    };
    let at = text.as_bytes().windows(mask.len()).position(fits);
    at.map_or_else(
        || text.to_owned(),
        |at| format!("{}{by}{}", &text[..at], masked(&text[at + mask.len()..], mask, by)),
    )
}

/// Removes what follows a phrase.
fn after(text: &str, phrase: &str, volatile: fn(char) -> bool) -> String {
    let mut parts = text.split(phrase);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + phrase + "<any>" + part.trim_start_matches(volatile))
}
