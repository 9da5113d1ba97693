//! JSON as upstream decodes it: duplicate fields are reported with their paths, integers stay exact, depth, size and
//! memory are bounded, and syntax errors have Go's messages.
//!
//! [`parse`] decodes any document, [`type_meta`] only `apiVersion` and `kind`; schema-driven decoders use
//! [`reader::JsonReader`].

mod go_format;
mod raw_message;
pub mod reader;
pub mod scanner;

use std::{borrow::Cow, fmt};

pub use self::{
    go_format::{escape_html, go_float, go_number, go_quote, go_type, go_value, indent_json, value_type_name},
    raw_message::{compact_json, raw_field},
};

use self::reader::{JsonReader, ReadError};
use crate::{
    Value,
    budget::{MemoryBudget, OverBudget},
    field_path::FieldPath,
};

/// Maximum nesting depth of an object.
pub const MAX_DEPTH: usize = 256;
/// Maximum size of an object in bytes.
pub const MAX_SIZE: usize = 3 << 20;

/// A JSON decoding error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Invalid syntax, with Go's message.
    #[error("{0}")]
    Syntax(String),
    /// A number outside the range of a float.
    #[error("json: cannot unmarshal number {0} into Go value of type float64")]
    Number(String),
    /// The nesting depth exceeds its limit.
    #[error("exceeded max depth of {MAX_DEPTH}")]
    Depth,
    /// The size exceeds its limit.
    #[error("Request entity too large: limit is {MAX_SIZE}")]
    Size,
    /// The memory exceeds its limit.
    #[error(transparent)]
    Memory(#[from] OverBudget),
    /// `apiVersion` or `kind` is not a string, or the document is not an object.
    #[error("json: cannot unmarshal {found} into Go {what}")]
    TypeMeta {
        /// The JSON type that was found.
        found: &'static str,
        /// The Go field or type that was expected there.
        what: &'static str,
    },
}

/// A strict decoding violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrictViolation {
    /// A field that the schema does not declare.
    Unknown(String),
    /// A duplicate field.
    Duplicate(String),
}

impl fmt::Display for StrictViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictViolation::Unknown(path) => write!(f, "unknown field {path:?}"),
            StrictViolation::Duplicate(path) => write!(f, "duplicate field {path:?}"),
        }
    }
}

/// Decodes a document and returns the paths of its duplicate fields; the last duplicate wins.
pub fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), JsonError> {
    let (value, reader) = decode_document(bytes, MemoryBudget::default(), true)?;
    let path = |violation| match violation {
        StrictViolation::Unknown(path) | StrictViolation::Duplicate(path) => path,
    };
    Ok((value, reader.violations.into_iter().map(path).collect()))
}

/// Decodes a document that is part of a larger object.
pub fn parse_within(bytes: &[u8], budget: &mut MemoryBudget) -> Result<Value, JsonError> {
    let (value, left) = decode_document(bytes, budget.clone(), false)?;
    *budget = left.budget;
    Ok(value)
}

/// The violations and remaining budget after decoding.
struct DecodeState {
    violations: Vec<StrictViolation>,
    budget: MemoryBudget,
}

fn decode_document(bytes: &[u8], budget: MemoryBudget, strict: bool) -> Result<(Value, DecodeState), JsonError> {
    with_utf8_text(bytes, |text| -> Result<_, ReadError> {
        let mut reader = JsonReader::new(text, budget);
        let mut value = Value::Null;
        reader.read_value(&FieldPath::TOP, strict, &mut value)?;
        reader.scan.expect_end()?;
        Ok((value, DecodeState { violations: reader.violations, budget: reader.budget }))
    })
}

/// Returns the `apiVersion` and `kind` of an object, empty if absent. The syntax of the whole document is checked.
pub fn type_meta(bytes: &[u8]) -> Result<(String, String), JsonError> {
    with_utf8_text(bytes, |text| -> Result<_, ReadError> {
        let mut reader = JsonReader::new(text, MemoryBudget::default());
        let found = match reader.scan.peek()? {
            b'{' => None,
            b'n' => Some(""),
            first => Some(json_type_name(first)),
        };
        let mut names = (String::new(), String::new());
        match found {
            None => read_type_meta_fields(&mut reader, &mut names)?,
            Some(found) => {
                reader.scan.skip_value()?;
                if !found.is_empty() {
                    return Err(JsonError::TypeMeta { found, what: STRUCT }.into());
                }
            }
        }
        reader.scan.expect_end()?;
        Ok(names)
    })
}

/// Returns the `apiVersion` and `kind` of a decoded object.
pub fn type_meta_of_value(value: &Value) -> Result<(String, String), JsonError> {
    let text = |name: &str, what| match value.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(JsonError::TypeMeta { found: value_type_name(other), what }),
    };
    match value {
        Value::Object(_) | Value::Null => Ok((text("apiVersion", API_VERSION)?, text("kind", KIND)?)),
        other => Err(JsonError::TypeMeta { found: value_type_name(other), what: STRUCT }),
    }
}

const API_VERSION: &str = "struct field .apiVersion of type string";
const KIND: &str = "struct field .kind of type string";
const STRUCT: &str = r#"value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

fn read_type_meta_fields(reader: &mut JsonReader, (version, kind): &mut (String, String)) -> Result<(), ReadError> {
    let mut wrong = None;
    let mut more = reader.scan.enter_collection(b'}')?;
    while more {
        let (slot, what) = match &*reader.read_key()? {
            "apiVersion" => (Some(&mut *version), API_VERSION),
            "kind" => (Some(&mut *kind), KIND),
            _ => (None, ""),
        };
        match (slot, reader.scan.peek()?) {
            (Some(slot), b'"') => *slot = reader.read_string()?,
            (slot, first) => {
                reader.scan.skip_value()?;
                if slot.is_some() && first != b'n' && wrong.is_none() {
                    wrong = Some(JsonError::TypeMeta { found: json_type_name(first), what });
                }
            }
        }
        more = reader.scan.advance_entry(b'}')?;
    }
    wrong.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns Go's name for the JSON type that starts with a byte.
pub fn json_type_name(first: u8) -> &'static str {
    match first {
        b'{' => "object",
        b'[' => "array",
        b'"' => "string",
        b't' | b'f' => "bool",
        b'n' => "null",
        _ => "number",
    }
}

/// Converts a float to a JSON number: exact whole numbers become integers; `None` for NaN and infinities.
pub fn from_float(value: f64) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        return Some((value as i64).into());
    }
    serde_json::Number::from_f64(value).map(Value::Number)
}

/// Decodes bytes as UTF-8 as Go does: every invalid byte becomes U+FFFD. JSON syntax errors take precedence.
pub fn with_utf8_text<T, S: Into<Option<E>>, E: From<JsonError>>(
    bytes: &[u8],
    read: impl FnOnce(&str) -> Result<T, S>,
) -> Result<T, E> {
    if bytes.len() > MAX_SIZE {
        return Err(JsonError::Size.into());
    }
    read(&replace_invalid_utf8(bytes)).map_err(|stop| match (scanner::validate_syntax(bytes), stop.into()) {
        (Err(error), _) => error.into(),
        (Ok(()), Some(error)) => error,
        (Ok(()), None) => JsonError::Syntax("unexpected end of JSON input".to_owned()).into(),
    })
}

/// Replaces every invalid UTF-8 byte by U+FFFD.
pub fn replace_invalid_utf8(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn duplicate_fields_are_reported_with_their_paths() {
        let (value, twice) = parse(br#"{"a": {"b": [0, {"c": 1, "c": 2}]}, "a": 3}"#).unwrap();
        assert_eq!(value, json!({"a": 3}));
        assert_eq!(twice, ["a.b[1].c", "a"]);
    }

    #[test]
    fn numbers_are_decoded_like_go() {
        let (value, _) =
            parse(b"[9223372036854775807, -9223372036854775808, 1.0, 2.5, -0, 1e3, 18446744073709551615]").unwrap();
        assert_eq!(value, json!([i64::MAX, i64::MIN, 1, 2.5, 0, 1000, 18446744073709551615.0]));
        assert_eq!(
            parse(b"[1e999]").unwrap_err().to_string(),
            "json: cannot unmarshal number 1e999 into Go value of type float64"
        );
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(parse(b"\"a\xff\xfe\"").unwrap().0, "a\u{fffd}\u{fffd}");
        assert_eq!(parse(br#""\ud800 \ud83d\ude00 \udc00\u0041""#).unwrap().0, "\u{fffd} 😀 \u{fffd}A");
    }

    #[test]
    fn depth_size_and_memory_are_bounded() {
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(parse(&nested(MAX_DEPTH + 1)).unwrap_err(), JsonError::Depth);
        assert!(matches!(parse(&nested(1_000_000)), Err(JsonError::Syntax(_))), "Go has a limit too");
        assert_eq!(parse(&vec![b' '; MAX_SIZE + 1]).unwrap_err(), JsonError::Size);
        let many = format!("[{}0]", "{\"\":0},".repeat(300_000));
        assert_eq!(parse(many.as_bytes()).unwrap_err(), JsonError::Memory(OverBudget));
    }

    #[test]
    fn type_meta_is_read_from_objects() {
        assert_eq!(type_meta(br#"{"x":[{}],"kind":"Pod","apiVersion":"v1"}"#).unwrap(), ("v1".into(), "Pod".into()));
        assert_eq!(type_meta(b"{}").unwrap(), (String::new(), String::new()));
        assert_eq!(type_meta(br#"{"kind":null}"#).unwrap().1, "");
        for wrong in [&b"[]"[..], b"1", br#"{"kind":1}"#, br#"{"kind":"a"#] {
            type_meta(wrong).unwrap_err();
        }
    }
}
