//! The functions of templates.

use std::cmp::Ordering;

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{TemplateError, format_verbs::format_text, value_text::print_inner};

const NAMES: [&str; 22] = [
    "and",
    "or",
    "not",
    "len",
    "index",
    "slice",
    "print",
    "printf",
    "println",
    "html",
    "js",
    "urlquery",
    "call",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "exists",
    "base64decode",
    "fail",
];

/// Whether a word is a function.
pub fn is_function(name: &str) -> bool {
    NAMES[..21].contains(&name)
}

/// Whether a value counts as true.
pub fn is_true(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
    }
}

fn fault<T>(text: impl Into<String>) -> Result<T, TemplateError> {
    Err(TemplateError(text.into()))
}

/// Calls a function.
pub fn call(name: &str, arguments: &[Option<Value>]) -> Result<Option<Value>, TemplateError> {
    let first = arguments.first().and_then(Option::as_ref);
    let needs = |count: usize| {
        if arguments.len() < count {
            return fault(format!("wrong number of args for {name}: want at least {count} got {}", arguments.len()));
        }
        Ok(())
    };
    match name {
        "and" | "or" => {
            needs(1)?;
            Ok(arguments.last().cloned().flatten())
        }
        "not" => Ok(Some((!is_true(first)).into())),
        "len" => length(first).map(|length| Some(length.into())),
        "index" => {
            needs(1)?;
            index(first.cloned(), &arguments[1..])
        }
        "slice" => {
            needs(1)?;
            slice(first, &arguments[1..])
        }
        "print" => Ok(Some(join(arguments, false).into())),
        "println" => Ok(Some((join(arguments, true) + "\n").into())),
        "printf" => {
            needs(1)?;
            let template = first.and_then(Value::as_str).unwrap_or_default();
            Ok(Some(format_text(template, &arguments[1..]).into()))
        }
        "html" => Ok(Some(escape_html(&join(arguments, false)).into())),
        "js" => Ok(Some(join(arguments, false).replace('\\', "\\\\").replace('\'', "\\'").replace('"', "\\\"").into())),
        "urlquery" => {
            let encoded = crate::rest::encode_query(&[(String::new(), join(arguments, false))]);
            Ok(Some(encoded.trim_start_matches('=').into()))
        }
        "eq" => {
            needs(2)?;
            let mut equal = false;
            for other in &arguments[1..] {
                equal |= compare(arguments[0].as_ref(), other.as_ref())? == Some(Ordering::Equal);
            }
            Ok(Some(equal.into()))
        }
        "ne" | "lt" | "le" | "gt" | "ge" => {
            needs(2)?;
            let order = compare(arguments[0].as_ref(), arguments[1].as_ref())?;
            Ok(Some(holds(name, order).into()))
        }
        "exists" => {
            let rest = arguments.get(1..).unwrap_or_default();
            let found = index(first.cloned(), rest).ok().flatten();
            Ok(Some(found.is_some_and(|value| !value.is_null()).into()))
        }
        "base64decode" => decode_base64(first),
        _ => fault(format!("{name} is not a function that can be called here")),
    }
}

fn holds(name: &str, order: Option<Ordering>) -> bool {
    match name {
        "ne" => order != Some(Ordering::Equal),
        "lt" => order == Some(Ordering::Less),
        "le" => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        "gt" => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn decode_base64(value: Option<&Value>) -> Result<Option<Value>, TemplateError> {
    let Some(Value::String(text)) = value else { return fault("wrong type for value; expected string") };
    match STANDARD.decode(text) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned().into())),
        Err(error) => fault(format!("base64 decode failed: {error}")),
    }
}

fn length(value: Option<&Value>) -> Result<usize, TemplateError> {
    match value {
        Some(Value::String(text)) => Ok(text.len()),
        Some(Value::Array(items)) => Ok(items.len()),
        Some(Value::Object(map)) => Ok(map.len()),
        Some(other) => fault(format!("len of type {}", api::json::go_type(other))),
        None => fault("len of nil pointer"),
    }
}

fn index(start: Option<Value>, keys: &[Option<Value>]) -> Result<Option<Value>, TemplateError> {
    let mut value = start;
    for key in keys {
        value = match (value, key) {
            (Some(Value::Array(mut items)), Some(Value::Number(number))) => {
                let at = number.as_i64().unwrap_or(-1);
                match usize::try_from(at).ok().filter(|at| *at < items.len()) {
                    Some(at) => Some(items.swap_remove(at)),
                    None => return fault(format!("index out of range: {at}")),
                }
            }
            (Some(Value::Object(mut map)), Some(Value::String(name))) => map.remove(name),
            (None | Some(Value::Null), _) => return fault("index of untyped nil"),
            (Some(Value::Array(_)), Some(other)) => {
                return fault(format!("cannot index slice/array with type {}", api::json::go_type(other)));
            }
            (Some(other), _) => return fault(format!("can't index item of type {}", api::json::go_type(&other))),
        };
    }
    Ok(value)
}

fn slice(value: Option<&Value>, bounds: &[Option<Value>]) -> Result<Option<Value>, TemplateError> {
    let bound = |at: usize| bounds.get(at).and_then(Option::as_ref).and_then(Value::as_u64).map(|bound| bound as usize);
    let length = length(value)?;
    let (start, end) = (bound(0).unwrap_or(0), bound(1).unwrap_or(length));
    if start > end || end > length {
        return fault(format!("index out of range: {end}"));
    }
    match value {
        Some(Value::String(text)) => Ok(text.get(start..end).map(Value::from)),
        Some(Value::Array(items)) => Ok(Some(items[start..end].to_vec().into())),
        _ => fault("can't slice item"),
    }
}

/// Joins arguments as `fmt.Sprint` or `fmt.Sprintln` do.
fn join(arguments: &[Option<Value>], always_spaced: bool) -> String {
    let mut out = String::new();
    let mut previous_text = true;
    for (at, argument) in arguments.iter().enumerate() {
        let is_text = matches!(argument, Some(Value::String(_)));
        if at > 0 && (always_spaced || !is_text && !previous_text) {
            out.push(' ');
        }
        out += &argument.as_ref().map_or_else(|| "<nil>".to_owned(), print_inner);
        previous_text = is_text;
    }
    out
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Result<Option<Ordering>, TemplateError> {
    let (Some(left), Some(right)) = (left, right) else {
        return Ok((left.is_none() && right.is_none()).then_some(Ordering::Equal));
    };
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(left), Value::Number(right)) => Ok(left.as_f64().partial_cmp(&right.as_f64())),
        (Value::Null, Value::Null) => Ok(Some(Ordering::Equal)),
        (Value::Null, _) | (_, Value::Null) => Ok(None),
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            fault("non-comparable type")
        }
        _ => fault("incompatible types for comparison"),
    }
}

fn escape_html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&#34;")
}
