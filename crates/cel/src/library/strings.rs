//! The string functions. Positions count characters, not bytes.

use super::{Bodies, MOST_BYTES, int, made, text};
use crate::{
    error::Error,
    value::{List, Value, characters},
};

pub(super) const BODIES: Bodies = &[
    ("charAt", char_at),
    ("contains", |args| Ok(Value::Bool(text(&args[0])?.contains(text(&args[1])?)))),
    ("endsWith", |args| Ok(Value::Bool(text(&args[0])?.ends_with(text(&args[1])?)))),
    ("startsWith", |args| Ok(Value::Bool(text(&args[0])?.starts_with(text(&args[1])?)))),
    ("indexOf", |args| match &args[0] {
        Value::List(list) => Ok(super::lists::position(list, &args[1], false)),
        _ => index_of(args),
    }),
    ("lastIndexOf", |args| match &args[0] {
        Value::List(list) => Ok(super::lists::position(list, &args[1], true)),
        _ => last_index_of(args),
    }),
    ("join", join),
    ("lowerAscii", |args| made(text(&args[0])?.to_ascii_lowercase())),
    ("upperAscii", |args| made(text(&args[0])?.to_ascii_uppercase())),
    ("replace", replace),
    ("split", split),
    ("substring", substring),
    ("trim", |args| made(text(&args[0])?.trim_matches(is_space).into())),
    ("strings.quote", |args| made(quote(text(&args[0])?))),
    ("jsonpatch.escapeKey", |args| made(text(&args[0])?.replace('~', "~0").replace('/', "~1"))),
];

/// Whether a character is white space by Go's `unicode.IsSpace`.
fn is_space(c: char) -> bool {
    c.is_whitespace()
}

fn out_of_range(index: i64) -> Error {
    Error::failed(format!("index out of range: {index}"))
}

/// Returns the byte offset of a character; an index equal to the length is the end of the string.
fn offset(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, index) = (text(&args[0])?, int(&args[1])?);
    let at = offset(text, index).ok_or_else(|| out_of_range(index))?;
    made(text[at..].chars().take(1).collect())
}

fn index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let from = args.get(2).map_or(Ok(0), int)?;
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    let Some(start) = offset(text, from) else { return Ok(Value::Int(-1)) };
    let found = text[start..].find(part);
    Ok(Value::Int(found.map_or(-1, |at| from + characters(&text[start..start + at]) as i64)))
}

fn last_index_of<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, part) = (text(&args[0])?, text(&args[1])?);
    let len = characters(text) as i64;
    let last = match args.get(2) {
        Some(last) => int(last)?,
        None if part.is_empty() => return Ok(Value::Int(len)),
        None if text.len() < part.len() => return Ok(Value::Int(-1)),
        None => len - 1,
    };
    if part.is_empty() {
        return Ok(Value::Int(last));
    }
    if last < 0 {
        return Err(out_of_range(last));
    }
    if last >= len {
        return Ok(Value::Int(-1));
    }
    let found = text.char_indices().enumerate().take_while(|(index, _)| *index as i64 <= last);
    let found = found.filter(|(_, (at, _))| text[*at..].starts_with(part)).last();
    Ok(Value::Int(found.map_or(-1, |(index, _)| index as i64)))
}

fn join<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let Value::List(list) = &args[0] else { return Err(Error::no_such_overload()) };
    let separator = args.get(1).map_or(Ok(""), text)?;
    if !matches!(list.iter().next(), None | Some(Value::String(_))) {
        return Err(Error::no_such_overload());
    }
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        let Value::String(text) = &item else {
            return Err(Error::failed(format!("join: invalid input: {}", item.shown())));
        };
        if at > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
        if joined.len() > MOST_BYTES {
            return Err(Error::CostLimit);
        }
    }
    made(joined)
}

fn replace<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, old, new) = (text(&args[0])?, text(&args[1])?, text(&args[2])?);
    let most = match args.get(3) {
        Some(count) => usize::try_from(int(count)?).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let places = if old.is_empty() { characters(text) + 1 } else { text.len() / old.len() };
    if places.min(most).saturating_mul(new.len()) > MOST_BYTES && text.matches(old).count() * new.len() > MOST_BYTES {
        return Err(Error::CostLimit);
    }
    made(text.replacen(old, new, most))
}

fn split<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, separator) = (text(&args[0])?, text(&args[1])?);
    let most = args.get(2).map_or(Ok(-1), int)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let parts: Vec<&str> = match (most, separator) {
        (0, _) => Vec::new(),
        (_, "") => letters(text, most),
        _ => text.splitn(most, separator).collect(),
    };
    if parts.len() > super::MOST_ITEMS {
        return Err(Error::CostLimit);
    }
    Ok(Value::list(parts.into_iter().map(Value::owned_text).collect()))
}

/// Splits a string into at most `most` parts of one character each; the last part holds the rest.
fn letters(text: &str, most: usize) -> Vec<&str> {
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

fn substring<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let (text, start) = (text(&args[0])?, int(&args[1])?);
    let Some(end) = args.get(2).map(int).transpose()? else {
        let at = offset(text, start).ok_or_else(|| out_of_range(start))?;
        return made(text[at..].into());
    };
    if start > end {
        return Err(Error::failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = offset(text, start).ok_or_else(|| out_of_range(start))?;
    let to = offset(text, end).ok_or_else(|| out_of_range(end))?;
    made(text[from..to].into())
}

fn quote(text: &str) -> String {
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
pub(super) fn texts<'a>(parts: impl IntoIterator<Item = impl Into<std::sync::Arc<str>>>) -> Value<'a> {
    Value::List(List::Made(std::sync::Arc::new(parts.into_iter().map(Value::owned_text).collect()), None))
}
