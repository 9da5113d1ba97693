//! The functions of templates.

use std::cmp::Ordering;

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    TemplateError,
    format_verbs::{format_text, type_name},
    value_text::print_inner,
};

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
            for other in rest {
                if equals(first, other.as_ref())? {
                    return Ok(Some(true.into()));
                }
            }
            Ok(Some(false.into()))
        }
        "ne" => Ok(Some((!equals(first, rest.first().and_then(Option::as_ref))?).into())),
        "lt" | "le" | "gt" | "ge" => {
            let order = compare(first, rest.first().and_then(Option::as_ref))?;
            Ok(Some(holds(name, order).into()))
        }
        "exists" => {
            let found = index(first.cloned(), rest).ok().flatten();
            Ok(Some(found.is_some_and(|value| !value.is_null()).into()))
        }
        "base64decode" => decode_base64(first),
        _ => fault("call of nil"),
    }
}

fn holds(name: &str, order: Option<Ordering>) -> bool {
    match name {
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
        Some(other) => fault(format!("len of type {}", type_name(other))),
        None => fault("reflect: call of reflect.Value.Type on zero Value"),
    }
}

fn index(start: Option<Value>, keys: &[Option<Value>]) -> Result<Option<Value>, TemplateError> {
    if start.as_ref().is_none_or(Value::is_null) {
        return fault("index of untyped nil");
    }
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
            (None | Some(Value::Null), _) => return fault("index of nil pointer"),
            (Some(Value::Array(_)), Some(other)) => {
                return fault(format!("cannot index slice/array with type {}", type_name(other)));
            }
            (Some(Value::Object(_)), Some(other)) => {
                return fault(format!("value has type {}; should be string", type_name(other)));
            }
            (Some(Value::String(text)), Some(Value::Number(number))) => {
                let at = number.as_i64().unwrap_or(-1);
                match usize::try_from(at).ok().and_then(|at| text.as_bytes().get(at).copied()) {
                    Some(byte) => Some(byte.into()),
                    None => return fault(format!("index out of range: {at}")),
                }
            }
            (Some(Value::String(_)), Some(other)) => {
                return fault(format!("cannot index slice/array with type {}", type_name(other)));
            }
            (Some(other), _) => return fault(format!("can't index item of type {}", type_name(&other))),
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

/// Whether two values are equal, as `eq` sees it; values of different kinds cannot be compared.
fn equals(left: Option<&Value>, right: Option<&Value>) -> Result<bool, TemplateError> {
    let is_nil = |value: Option<&Value>| value.is_none_or(Value::is_null);
    if is_nil(left) || is_nil(right) {
        return Ok(is_nil(left) && is_nil(right));
    }
    match (left, right) {
        (Some(value @ (Value::Object(_) | Value::Array(_))), Some(Value::Object(_) | Value::Array(_))) => {
            fault(format!("non-comparable type {}: {}", print_inner(value), type_name(value)))
        }
        (Some(Value::Bool(left)), Some(Value::Bool(right))) => Ok(left == right),
        _ => Ok(compare(left, right)? == Some(Ordering::Equal)),
    }
}

/// The order of two numbers or texts; other values have none.
fn compare(left: Option<&Value>, right: Option<&Value>) -> Result<Option<Ordering>, TemplateError> {
    let (Some(left), Some(right)) = (left, right) else { return fault("invalid type for comparison") };
    let is_basic = |value: &Value| matches!(value, Value::String(_) | Value::Bool(_) | Value::Number(_));
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(Some(left.cmp(right))),
        (Value::Number(one), Value::Number(other)) if one.is_f64() == other.is_f64() => {
            Ok(one.as_f64().partial_cmp(&other.as_f64()))
        }
        (left, right) if type_name(left) != type_name(right) && (is_basic(left) || is_basic(right)) => {
            fault(format!("incompatible types for comparison: {} and {}", type_name(left), type_name(right)))
        }
        _ => fault("invalid type for comparison"),
    }
}

fn escape_html(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('\'', "&#39;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&#34;")
}
