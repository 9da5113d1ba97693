//! JSON as upstream reads it: duplicate and unknown fields are found with their paths, integers stay exact, depth, size and
//! memory are bounded, and what is no JSON is refused in Go's words.
//!
//! [`parse`] reads anything, [`parse_as`] a type of the schema, [`type_meta`] only what an object says it is.

mod reader;
mod syntax;

use std::{borrow::Cow, fmt};

use serde::de::DeserializeSeed;

use crate::{
    Value,
    budget::{Budget, Exceeded},
    decode::MAX_DEPTH,
    schema::{TypeId, schema},
};
pub(crate) use syntax::replace_invalid;

/// The largest object that is read, in bytes.
pub const MAX_SIZE: usize = 3 << 20;

/// Why bytes cannot be read as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No JSON, in the words of Go.
    #[error("{0}")]
    Syntax(String),
    /// A number that no float can hold.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
    /// Nested too deeply.
    #[error("exceeded max depth of {MAX_DEPTH}")]
    Depth,
    /// Too many bytes.
    #[error("Request entity too large: limit is {MAX_SIZE}")]
    Size,
    /// Too much memory.
    #[error(transparent)]
    Memory(#[from] Exceeded),
    /// `apiVersion` or `kind` is no text, or the whole is no object.
    #[error("json: cannot unmarshal {found} into Go {what}")]
    TypeMeta {
        /// What was sent.
        found: &'static str,
        /// What it stands for.
        what: &'static str,
    },
}

/// A field that strict decoding does not allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The schema does not know it.
    Unknown(String),
    /// It is there twice.
    Duplicate(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Unknown(path) => write!(f, "unknown field {path:?}"),
            Violation::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// JSON that was read with a type in mind; unknown fields are not in it.
#[derive(Debug)]
pub struct Parsed {
    /// The value.
    pub value: Value,
    /// In the order of the document.
    pub violations: Vec<Violation>,
    /// The memory that the object may still take.
    pub budget: Budget,
}

/// Reads any JSON, and the paths of the fields that are there twice; the last one counts.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), Error> {
    let parsed = read(bytes, reader::Shape::Any, Budget::default())?;
    let path = |violation| match violation {
        Violation::Unknown(path) | Violation::Duplicate(path) => path,
    };
    Ok((parsed.value, parsed.violations.into_iter().map(path).collect()))
}

/// Reads JSON that should be of a type.
pub fn parse_as(bytes: &[u8], ty: TypeId) -> Result<Parsed, Error> {
    read(bytes, reader::Shape::Struct(schema().get(ty)), Budget::default())
}

/// Reads JSON that is a part of a larger object.
pub(crate) fn parse_within(bytes: &[u8], budget: &mut Budget) -> Result<Value, Error> {
    let parsed = read(bytes, reader::Shape::Any, budget.clone())?;
    *budget = parsed.budget;
    Ok(parsed.value)
}

/// The `apiVersion` and `kind` of an object; empty where there is none. All of the document is checked for syntax.
pub fn type_meta(bytes: &[u8]) -> Result<(String, String), Error> {
    let meta = with_text(bytes, |text| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.disable_recursion_limit();
        let mut state = reader::State::default();
        let meta = reader::TypeMeta { state: &mut state }.deserialize(&mut deserializer);
        finish(&mut deserializer, meta, state)
    })?;
    Ok(meta.0)
}

fn read(bytes: &[u8], shape: reader::Shape, budget: Budget) -> Result<Parsed, Error> {
    let (value, state) = with_text(bytes, |text| {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        deserializer.disable_recursion_limit();
        let mut state = reader::State { budget: budget.clone(), ..Default::default() };
        let value = reader::whole(&mut state, shape).deserialize(&mut deserializer);
        finish(&mut deserializer, value, state)
    })?;
    Ok(Parsed { value, violations: state.violations, budget: state.budget })
}

type Attempt<T> = Result<(T, reader::State), Failure>;

enum Failure {
    /// The reader stopped for a reason of its own.
    Ours(Error),
    /// The deserializer stopped.
    Theirs,
}

fn finish<T>(
    deserializer: &mut serde_json::Deserializer<serde_json::de::StrRead<'_>>,
    value: Result<T, serde_json::Error>,
    state: reader::State,
) -> Attempt<T> {
    match value.and_then(|value| deserializer.end().map(|()| value)) {
        Ok(value) => Ok((value, state)),
        Err(_) => Err(state.failed.map_or(Failure::Theirs, Failure::Ours)),
    }
}

/// Reads bytes as text as Go does: what is no UTF-8, or half of a pair of escapes, becomes U+FFFD.
fn with_text<T>(bytes: &[u8], attempt: impl Fn(&str) -> Attempt<T>) -> Result<(T, reader::State), Error> {
    if bytes.len() > MAX_SIZE {
        return Err(Error::Size);
    }
    let text = syntax::replace_invalid(bytes);
    let failure = match attempt(&text) {
        Ok(done) => return Ok(done),
        Err(failure) => failure,
    };
    if let Failure::Ours(error) = failure {
        return Err(error);
    }
    syntax::check(bytes)?;
    let repaired: Cow<str> = syntax::replace_lone_surrogates(&text);
    match attempt(&repaired) {
        Ok(done) => Ok(done),
        Err(Failure::Ours(error)) => Err(error),
        Err(Failure::Theirs) => Err(Error::Number(syntax::widest_number(&text).to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicates_are_found_with_their_paths() {
        let (value, twice) = parse(br#"{"a": {"b": [0, {"c": 1, "c": 2}]}, "a": 3}"#).unwrap();
        assert_eq!(value, json!({"a": 3}));
        assert_eq!(twice, ["a.b[1].c", "a"]);
    }

    #[test]
    fn numbers_are_what_go_makes_of_them() {
        let (value, _) =
            parse(b"[9223372036854775807, -9223372036854775808, 1.0, 2.5, -0, 1e3, 18446744073709551615]").unwrap();
        assert_eq!(value, json!([i64::MAX, i64::MIN, 1, 2.5, 0, 1000, 18446744073709551615.0]));
        assert_eq!(
            parse(b"[1e999]").unwrap_err().to_string(),
            "json: cannot unmarshal number 1e999 into Go value of type float64"
        );
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        assert_eq!(parse(b"\"a\xff\xfe\"").unwrap().0, "a\u{fffd}\u{fffd}");
        assert_eq!(parse(br#""\ud800 \ud83d\ude00 \udc00\u0041""#).unwrap().0, "\u{fffd} 😀 \u{fffd}A");
    }

    #[test]
    fn depth_size_and_memory_are_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(parse(&nested(MAX_DEPTH + 1)).unwrap_err(), Error::Depth);
        assert_eq!(parse(&nested(1_000_000)).unwrap_err(), Error::Depth);
        assert_eq!(parse(&vec![b' '; MAX_SIZE + 1]).unwrap_err(), Error::Size);
        let many = format!("[{}0]", "{\"\":0},".repeat(300_000));
        assert_eq!(parse(many.as_bytes()).unwrap_err(), Error::Memory(Exceeded));
    }

    #[test]
    fn objects_say_what_they_are() {
        assert_eq!(type_meta(br#"{"x":[{}],"kind":"Pod","apiVersion":"v1"}"#).unwrap(), ("v1".into(), "Pod".into()));
        assert_eq!(type_meta(b"{}").unwrap(), (String::new(), String::new()));
        assert_eq!(type_meta(br#"{"kind":null}"#).unwrap().1, "");
        for wrong in [&b"[]"[..], b"1", br#"{"kind":1}"#, br#"{"kind":"a"#] {
            type_meta(wrong).unwrap_err();
        }
    }
}
