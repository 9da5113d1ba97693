//! Builds values from JSON text: unescapes strings, keeps integers exact, records duplicate keys with their paths.
//!
//! [`super::parse`] decodes whole documents with it, schema-driven decoders the parts without a schema.

use std::borrow::Cow;

use serde_json::map::Entry;

use super::{
    JsonError, MAX_DEPTH, StrictViolation,
    scanner::{JsonScanner, NO_VALUE, QuotedRange, SyntaxError},
};
use crate::{
    Map, Value,
    budget::{MemoryBudget, OverBudget},
    field_path::FieldPath,
};

/// Maximum number of recorded violations, which is upstream's.
const MAX_VIOLATIONS: usize = 100;

/// The cause of a failed read: a syntax error, which [`super::scanner::validate_syntax`] describes, or an exceeded limit.
#[derive(Debug)]
pub struct ReadError(pub Option<Box<JsonError>>);

impl From<SyntaxError> for ReadError {
    fn from(_: SyntaxError) -> Self {
        ReadError(None)
    }
}

impl From<JsonError> for ReadError {
    fn from(error: JsonError) -> Self {
        ReadError(Some(Box::new(error)))
    }
}

impl From<OverBudget> for ReadError {
    fn from(error: OverBudget) -> Self {
        JsonError::from(error).into()
    }
}

impl From<ReadError> for Option<JsonError> {
    fn from(stop: ReadError) -> Self {
        stop.0.map(|error| *error)
    }
}

/// A decoder with its position in a document.
pub struct JsonReader<'t> {
    text: &'t str,
    /// The scanner and its position.
    pub scan: JsonScanner<'t>,
    /// The memory left for the object.
    pub budget: MemoryBudget,
    /// Distinct violations, in document order.
    pub violations: Vec<StrictViolation>,
}

impl<'t> JsonReader<'t> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'t str, budget: MemoryBudget) -> Self {
        Self { text, scan: JsonScanner { bytes: text.as_bytes(), at: 0 }, budget, violations: Vec::new() }
    }

    /// Decodes any value into `out`, which avoids moving large values. Records duplicate keys if `strict` is set.
    pub fn read_value(&mut self, path: &FieldPath, strict: bool, out: &mut Value) -> Result<(), ReadError> {
        match self.scan.peek()? {
            b'{' => self.read_object(path, strict, out)?,
            b'[' => self.read_list(path, strict, out)?,
            b'"' => *out = Value::String(self.read_string()?),
            b'-' | b'0'..=b'9' => *out = parse_number(self.read_number()?)?,
            b't' => {
                self.scan.scan_literal("true")?;
                *out = Value::Bool(true);
            }
            b'f' => {
                self.scan.scan_literal("false")?;
                *out = Value::Bool(false);
            }
            b'n' => {
                self.scan.scan_literal("null")?;
                *out = Value::Null;
            }
            _ => return Err(NO_VALUE.into()),
        }
        Ok(())
    }

    fn read_object(&mut self, path: &FieldPath, strict: bool, out: &mut Value) -> Result<(), ReadError> {
        self.check_depth(path)?;
        let mut map = Map::new();
        let mut more = self.scan.enter_collection(b'}')?;
        while more {
            let key = self.read_key()?.into_owned();
            self.budget.charge_map_entry(map.len(), key.len())?;
            let noted = self.violations.len();
            let mut value = Value::Null;
            self.read_value(&path.key(&key), strict, &mut value)?;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    if strict {
                        self.record_violation_at(noted, StrictViolation::Duplicate(path.key(entry.key()).to_string()));
                    }
                    entry.insert(value);
                }
            }
            more = self.scan.advance_entry(b'}')?;
        }
        *out = Value::Object(map);
        Ok(())
    }

    fn read_list(&mut self, path: &FieldPath, strict: bool, out: &mut Value) -> Result<(), ReadError> {
        self.check_depth(path)?;
        let mut items = Vec::new();
        let mut more = self.scan.enter_collection(b']')?;
        while more {
            self.budget.charge_list_element()?;
            let mut value = Value::Null;
            self.read_value(&path.index(items.len()), strict, &mut value)?;
            items.push(value);
            more = self.scan.advance_entry(b']')?;
        }
        *out = Value::Array(items);
        Ok(())
    }

    /// Checks the nesting depth of an object or list at a path.
    #[inline]
    pub fn check_depth(&self, path: &FieldPath) -> Result<(), ReadError> {
        if path.depth >= MAX_DEPTH { Err(JsonError::Depth.into()) } else { Ok(()) }
    }

    /// Reads a key and its colon.
    #[inline]
    pub fn read_key(&mut self) -> Result<Cow<'t, str>, ReadError> {
        let key = self.scan.scan_key()?;
        Ok(self.unquote_string(key))
    }

    /// Reads a string; the scanner is at its opening quote.
    #[inline]
    pub fn read_string(&mut self) -> Result<String, ReadError> {
        let text = self.scan.scan_string()?;
        self.budget.charge_string(text.end - text.start)?;
        Ok(self.unquote_string(text).into_owned())
    }

    /// Reads the digits of a number; the scanner is at its first byte.
    #[inline]
    pub fn read_number(&mut self) -> Result<&'t str, ReadError> {
        let range = self.scan.scan_number()?;
        Ok(&self.text[range])
    }

    #[inline(always)]
    fn unquote_string(&self, text: QuotedRange) -> Cow<'t, str> {
        let inner = &self.text[text.start..text.end];
        if text.escapes > 0 { Cow::Owned(unescape_string(inner)) } else { Cow::Borrowed(inner) }
    }

    /// Records a violation, unless it is a duplicate or the limit is reached.
    pub fn record_violation(&mut self, violation: StrictViolation) {
        self.record_violation_at(self.violations.len(), violation);
    }

    /// Records a violation at index `at`.
    fn record_violation_at(&mut self, at: usize, violation: StrictViolation) {
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&violation) {
            self.violations.insert(at.min(self.violations.len()), violation);
        }
    }
}

/// Parses an untyped number: an integer if it is one, otherwise a float.
pub fn parse_number(text: &str) -> Result<Value, ReadError> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(integer.into());
    }
    text.parse().ok().and_then(super::from_float).ok_or_else(|| JsonError::Number(text.to_owned()).into())
}

/// Unescapes a scanned string; an unpaired surrogate becomes U+FFFD.
fn unescape_string(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        rest = match escape.as_bytes().first() {
            Some(b'u') => {
                let (c, after) = unicode_escape(escape);
                out.push(c);
                after
            }
            Some(letter) => {
                out.push(simple_escape(*letter));
                &escape[1..]
            }
            None => "",
        };
    }
    out.push_str(rest);
    out
}

fn simple_escape(letter: u8) -> char {
    match letter {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        other => char::from(other),
    }
}

/// Decodes a `\u` escape, or a surrogate pair of them, and returns the rest.
fn unicode_escape(escape: &str) -> (char, &str) {
    let unit = |text: &str| text.get(1..5).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let (high, after) = (unit(escape).unwrap_or(0xfffd), &escape[escape.len().min(5)..]);
    let low = after.strip_prefix('\\').filter(|next| next.starts_with('u')).and_then(unit);
    match (high, low) {
        (0xd800..0xdc00, Some(low @ 0xdc00..0xe000)) => {
            let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(code).unwrap_or('\u{fffd}'), &after[6..])
        }
        _ => (char::from_u32(high).unwrap_or('\u{fffd}'), after),
    }
}
