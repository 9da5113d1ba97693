//! The functions of templates.

use std::cmp::Ordering;

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{TemplateError, format_verbs::format_text, value_text::print_inner};

const NAMES: [&str; 21] = [
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
];

/// Whether a word is a function.
pub fn is_function(name: &str) -> bool {
    NAMES.contains(&name)
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

/// Returns the error about the number of arguments of a function, if any.
pub fn check_arguments(name: &str, count: usize) -> Option<String> {
    let (least, variadic) = match name {
        "not" | "len" | "base64decode" => (1, false),
        "ne" | "lt" | "le" | "gt" | "ge" => (2, false),
        "print" | "println" | "html" | "js" | "urlquery" => (0, true),
        _ => (1, true),
    };
    match variadic {
        true if count < least => Some(format!("wrong number of args for {name}: want at least {least} got {count}")),
        false if count != least => Some(format!("wrong number of args for {name}: want {least} got {count}")),
        _ => None,
    }
}

/// Calls a function whose number of arguments is right.
pub fn call(name: &str, arguments: &[Option<Value>]) -> Result<Option<Value>, TemplateError> {
    let first = arguments.first().and_then(Option::as_ref);
    let rest = arguments.get(1..).unwrap_or_default();
    match name {
        "and" | "or" => Ok(arguments.last().cloned().flatten()),
        "not" => Ok(Some((!is_true(first)).into())),
        "len" => length(first).map(|length| Some(length.into())),
        "index" => index(first.cloned(), rest),
        "slice" => slice(first, rest),
        "print" => Ok(Some(join(arguments, false).into())),
        "println" => Ok(Some((join(arguments, true) + "\n").into())),
        "printf" => {
            let template = first.and_then(Value::as_str).unwrap_or_default();
            Ok(Some(format_text(template, rest).into()))
        }
        "html" => Ok(Some(escape_html(&join(arguments, false)).into())),
        "js" => Ok(Some(escape_js(&join(arguments, false)).into())),
        "urlquery" => {
            let encoded = crate::rest::encode_query(&[(String::new(), join(arguments, false))]);
            Ok(Some(encoded.trim_start_matches('=').into()))
        }
        "eq" => {
            if rest.is_empty() {
                return fault("missing argument for comparison");
            }
            let mut equal = false;
            for other in rest {
                equal |= compare(first, other.as_ref())? == Some(Ordering::Equal);
            }
            Ok(Some(equal.into()))
        }
        "ne" | "lt" | "le" | "gt" | "ge" => {
            let order = compare(first, rest.first().and_then(Option::as_ref))?;
            Ok(Some(holds(name, order).into()))
        }
        "exists" => {
            let found = index(first.cloned(), rest).ok().flatten();
            Ok(Some(found.is_some_and(|value| !value.is_null()).into()))
        }
        "base64decode" => decode_base64(first),
        _ => fault(match first {
            None | Some(Value::Null) => "call of nil".to_owned(),
            Some(other) => format!("non-function {} of type {}", print_inner(other), api::json::go_type(other)),
        }),
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
        Err(error) => fault(format!("base64 decode failed: illegal base64 data at input byte {}", error_byte(&error))),
    }
}

/// Escapes text for a JavaScript string.
fn escape_js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", c as u32)),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// The byte that Go blames.
fn error_byte(error: &base64::DecodeError) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => 0,
    }
}

fn length(value: Option<&Value>) -> Result<usize, TemplateError> {
    match value {
        Some(Value::String(text)) => Ok(text.len()),
        Some(Value::Array(items)) => Ok(items.len()),
        Some(Value::Object(map)) => Ok(map.len()),
        Some(other) => fault(format!("len of type {}", api::json::go_type(other))),
        None => fault("reflect: call of reflect.Value.Type on zero Value"),
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
            (Some(Value::Object(_)), Some(other)) => {
                return fault(format!("value has type {}; should be string", api::json::go_type(other)));
            }
            (Some(Value::String(text)), Some(Value::Number(number))) => {
                let at = number.as_i64().unwrap_or(-1);
                match usize::try_from(at).ok().and_then(|at| text.as_bytes().get(at).copied()) {
                    Some(byte) => Some(byte.into()),
                    None => return fault(format!("index out of range: {at}")),
                }
            }
            (Some(Value::String(_)), Some(other)) => {
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
    if let Some(outside) = [start, end].into_iter().find(|bound| *bound > length) {
        return fault(format!("index out of range: {outside}"));
    }
    if start > end {
        return fault(format!("invalid slice index: {start} > {end}"));
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

/// The Go type of a number.
fn number_type(number: &serde_json::Number) -> &'static str {
    if number.is_f64() { "float64" } else { "int" }
}

fn compare(left: Option<&Value>, right: Option<&Value>) -> Result<Option<Ordering>, TemplateError> {
    let (Some(left), Some(right)) = (left, right) else {
        return Ok((left.is_none() && right.is_none()).then_some(Ordering::Equal));
    };
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => {
            fault(format!("incompatible types for comparison: {} and {}", number_type(one), number_type(other)))
        }
        (Value::Number(left), Value::Number(right)) => Ok(left.as_f64().partial_cmp(&right.as_f64())),
        (Value::Null, Value::Null) => Ok(Some(Ordering::Equal)),
        (Value::Null, _) | (_, Value::Null) => Ok(None),
        _ => {
            let (left, right) = (api::json::go_type(left), api::json::go_type(right));
            fault(format!("incompatible types for comparison: {left} and {right}"))
        }
    }
}

fn escape_html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&#34;")
}
