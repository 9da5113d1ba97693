//! The string functions. Positions count characters, not bytes.

use super::{FunctionBodies, MAX_STRING_BYTES, checked_string, int_arg, string_arg};
use crate::{
    error::EvalError,
    value::{ListValue, Value, character_count},
};

pub(super) const BODIES: FunctionBodies = &[
    ("charAt", string_char_at),
    ("contains", |args| Ok(Value::Bool(string_arg(&args[0])?.contains(string_arg(&args[1])?)))),
    ("endsWith", |args| Ok(Value::Bool(string_arg(&args[0])?.ends_with(string_arg(&args[1])?)))),
    ("startsWith", |args| Ok(Value::Bool(string_arg(&args[0])?.starts_with(string_arg(&args[1])?)))),
    ("indexOf", |args| match &args[0] {
        Value::List(list) => Ok(super::lists::find_position(list, &args[1], false)),
        _ => string_index_of(args),
    }),
    ("lastIndexOf", |args| match &args[0] {
        Value::List(list) => Ok(super::lists::find_position(list, &args[1], true)),
        _ => string_last_index_of(args),
    }),
    ("join", string_join),
    ("lowerAscii", |args| checked_string(string_arg(&args[0])?.to_ascii_lowercase())),
    ("upperAscii", |args| checked_string(string_arg(&args[0])?.to_ascii_uppercase())),
    ("replace", string_replace),
    ("split", string_split),
    ("substring", string_substring),
    ("trim", |args| checked_string(string_arg(&args[0])?.trim_matches(is_space).into())),
    ("strings.quote", |args| checked_string(quote_string(string_arg(&args[0])?))),
    ("jsonpatch.escapeKey", |args| checked_string(string_arg(&args[0])?.replace('~', "~0").replace('/', "~1"))),
];

/// Whether a character is white space by Go's `unicode.IsSpace`.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn out_of_range_error(index: i64) -> EvalError {
    EvalError::new(format!("index out of range: {index}"))
}

/// Returns the byte offset of a character; an index equal to the length is the end of the string.
fn byte_offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn string_char_at<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, index) = (string_arg(&args[0])?, int_arg(&args[1])?);
    let at = byte_offset(text, index).ok_or_else(|| out_of_range_error(index))?;
    checked_string(text[at..].chars().take(1).collect())
}

fn string_index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, part) = (string_arg(&args[0])?, string_arg(&args[1])?);
    let from = args.get(2).map_or(Ok(0), int_arg)?;
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range_error(from));
    }
    let Some(start) = byte_offset(text, from) else { return Ok(Value::Int(-1)) };
    let found = text[start..].find(part);
    Ok(Value::Int(found.map_or(-1, |at| from + character_count(&text[start..start + at]) as i64)))
}

fn string_last_index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, part) = (string_arg(&args[0])?, string_arg(&args[1])?);
    let len = character_count(text) as i64;
    let last = match args.get(2) {
        Some(last) => int_arg(last)?,
        None if part.is_empty() => return Ok(Value::Int(len)),
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None => len - 1,
    };
    if part.is_empty() {
        return Ok(Value::Int(last));
    }
    if last < 0 {
        return Err(out_of_range_error(last));
    }
    if last >= len {
        return Ok(Value::Int(-1));
    }
    let found = text.char_indices().enumerate().take_while(|(index, _)| *index as i64 <= last);
    let found = found.filter(|(_, (at, _))| text[*at..].starts_with(part)).last();
    Ok(Value::Int(found.map_or(-1, |(index, _)| index as i64)))
}

fn string_join<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let Value::List(list) = &args[0] else { return Err(EvalError::no_such_overload()) };
    let separator = args.get(1).map_or(Ok(""), string_arg)?;
    if !matches!(list.iter().next(), None | Some(Value::String(_))) {
        return Err(EvalError::no_such_overload());
    }
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        let Value::String(text) = &item else {
            return Err(EvalError::new(format!("join: invalid input: {}", item.display_text())));
        };
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        if joined.len() > MAX_STRING_BYTES {
            return Err(EvalError::CostLimit);
        }
    }
    checked_string(joined)
}

fn string_replace<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, old, new) = (string_arg(&args[0])?, string_arg(&args[1])?, string_arg(&args[2])?);
    let most = match args.get(3) {
        Some(count) => usize::try_from(int_arg(count)?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let places = if old.is_empty() { character_count(text) + 1 } else { text.len() / old.len() };
    if places.min(most).saturating_mul(new.len()) > MAX_STRING_BYTES
        && text.matches(old).count() * new.len() > MAX_STRING_BYTES
    {
        return Err(EvalError::CostLimit);
    }
    checked_string(text.replacen(old, new, most))
}

fn string_split<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, separator) = (string_arg(&args[0])?, string_arg(&args[1])?);
    let most = args.get(2).map_or(Ok(-1), int_arg)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts: Vec<&str> = match (most, separator) {
        (0, _) => Vec::new(),
        (_, "") => split_characters(text, most),
        _ => text.splitn(most, separator).collect(),
    };
    if parts.len() > super::MAX_LIST_ITEMS {
        return Err(EvalError::CostLimit);
    }
    Ok(Value::from_list(parts.into_iter().map(Value::from_owned_string).collect()))
}

/// Splits a string into at most `most` parts of one character each; the last part holds the rest.
fn split_characters(text: &str, most: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == most {
            parts.push(rest);
            return parts;
        }
        let (first, more) = rest.split_at(c.len_utf8());
        parts.push(first);
        rest = more;
    }
    parts
}

fn string_substring<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (text, start) = (string_arg(&args[0])?, int_arg(&args[1])?);
    let Some(end) = args.get(2).map(int_arg).transpose()? else {
        let at = byte_offset(text, start).ok_or_else(|| out_of_range_error(start))?;
        return checked_string(text[at..].into());
    };
    if start > end {
        return Err(EvalError::new(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_offset(text, start).ok_or_else(|| out_of_range_error(start))?;
    let to = byte_offset(text, end).ok_or_else(|| out_of_range_error(end))?;
    checked_string(text[from..to].into())
}

fn quote_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a list of strings.
pub(super) fn string_list<'a>(parts: impl IntoIterator<Item = impl Into<std::sync::Arc<str>>>) -> Value<'a> {
    Value::List(ListValue::Made(std::sync::Arc::new(parts.into_iter().map(Value::from_owned_string).collect()), None))
}
