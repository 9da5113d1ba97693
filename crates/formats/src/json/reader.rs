//! Builds values from JSON text: unescapes strings, keeps integers exact, records duplicate keys with their paths.
//!
//! [`super::parse`] decodes whole documents with it, schema-driven decoders the parts without a schema.

use std::borrow::Cow;

use serde_json::map::Entry;

use super::{
    Error, MAX_DEPTH, Violation,
    scan::{Fault, NO_VALUE, Quoted, Scan},
};
use crate::{
    Map, Value,
    budget::{Budget, Exceeded},
    path::Path,
};

/// Maximum number of recorded violations, which is upstream's.
const MAX_VIOLATIONS: usize = 100;

/// The cause of a failed read: a syntax error, which [`super::scan::check`] describes, or an exceeded limit.
#[derive(Debug)]
pub struct Stop(pub Option<Box<Error>>);

impl From<Fault> for Stop {
    fn from(_: Fault) -> Self {
        Stop(None)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop(Some(Box::new(error)))
    }
}

impl From<Exceeded> for Stop {
    fn from(error: Exceeded) -> Self {
        Error::from(error).into()
    }
}

impl From<Stop> for Option<Error> {
    fn from(stop: Stop) -> Self {
        stop.0.map(|error| *error)
    }
}

/// A decoder with its position in a document.
pub struct Reader<'t> {
    text: &'t str,
    /// The scanner and its position.
    pub scan: Scan<'t>,
    /// The memory left for the object.
    pub budget: Budget,
    /// Distinct violations, in document order.
    pub violations: Vec<Violation>,
}

impl<'t> Reader<'t> {
    /// Starts at the beginning of a text.
    pub fn new(text: &'t str, budget: Budget) -> Self {
        Self { text, scan: Scan { bytes: text.as_bytes(), at: 0 }, budget, violations: Vec::new() }
    }

    /// Decodes any value into `out`, which avoids moving large values. Records duplicate keys if `strict` is set.
    pub fn any(&mut self, path: &Path, strict: bool, out: &mut Value) -> Result<(), Stop> {
        match self.scan.peek()? {
            b'{' => self.object(path, strict, out)?,
            b'[' => self.list(path, strict, out)?,
            b'"' => *out = Value::String(self.string()?),
            b'-' | b'0'..=b'9' => *out = number(self.number()?)?,
            b't' => {
                self.scan.literal("true")?;
                *out = Value::Bool(true);
            }
            b'f' => {
                self.scan.literal("false")?;
                *out = Value::Bool(false);
            }
            b'n' => {
                self.scan.literal("null")?;
                *out = Value::Null;
            }
            _ => return Err(NO_VALUE.into()),
        }
        Ok(())
    }

    fn object(&mut self, path: &Path, strict: bool, out: &mut Value) -> Result<(), Stop> {
        self.nest(path)?;
        let mut map = Map::new();
        let mut more = self.scan.enter(b'}')?;
        while more {
            let key = self.key()?.into_owned();
            self.budget.entry(map.len(), key.len())?;
            let noted = self.violations.len();
            let mut value = Value::Null;
            self.any(&path.key(&key), strict, &mut value)?;
            match map.entry(key) {
                Entry::Vacant(entry) => drop(entry.insert(value)),
                Entry::Occupied(mut entry) => {
                    if strict {
                        self.note_at(noted, Violation::Duplicate(path.key(entry.key()).to_string()));
                    }
                    entry.insert(value);
                }
            }
            more = self.scan.more(b'}')?;
        }
        *out = Value::Object(map);
        Ok(())
    }

    fn list(&mut self, path: &Path, strict: bool, out: &mut Value) -> Result<(), Stop> {
        self.nest(path)?;
        let mut items = Vec::new();
        let mut more = self.scan.enter(b']')?;
        while more {
            self.budget.element()?;
            let mut value = Value::Null;
            self.any(&path.index(items.len()), strict, &mut value)?;
            items.push(value);
            more = self.scan.more(b']')?;
        }
        *out = Value::Array(items);
        Ok(())
    }

    /// Checks the nesting depth of an object or list at a path.
    #[inline]
    pub fn nest(&self, path: &Path) -> Result<(), Stop> {
        if path.depth >= MAX_DEPTH { Err(Error::Depth.into()) } else { Ok(()) }
    }

    /// Reads a key and its colon.
    #[inline]
    pub fn key(&mut self) -> Result<Cow<'t, str>, Stop> {
        let key = self.scan.key()?;
        Ok(self.unquoted(key))
    }

    /// Reads a string; the scanner is at its opening quote.
    #[inline]
    pub fn string(&mut self) -> Result<String, Stop> {
        let text = self.scan.text()?;
        self.budget.text(text.end - text.start)?;
        Ok(self.unquoted(text).into_owned())
    }

    /// Reads the digits of a number; the scanner is at its first byte.
    #[inline]
    pub fn number(&mut self) -> Result<&'t str, Stop> {
        let range = self.scan.number()?;
        Ok(&self.text[range])
    }

    #[inline(always)]
    fn unquoted(&self, text: Quoted) -> Cow<'t, str> {
        let inner = &self.text[text.start..text.end];
        if text.escapes > 0 { Cow::Owned(unescaped(inner)) } else { Cow::Borrowed(inner) }
    }

    /// Records a violation, unless it is a duplicate or the limit is reached.
    pub fn note(&mut self, violation: Violation) {
        self.note_at(self.violations.len(), violation);
    }

    /// Records a violation at index `at`.
    fn note_at(&mut self, at: usize, violation: Violation) {
        if self.violations.len() < MAX_VIOLATIONS && !self.violations.contains(&violation) {
            self.violations.insert(at.min(self.violations.len()), violation);
        }
    }
}

/// Parses an untyped number: an integer if it is one, otherwise a float.
pub fn number(text: &str) -> Result<Value, Stop> {
    if let Ok(integer) = text.parse::<i64>() {
        return Ok(integer.into());
    }
    text.parse().ok().and_then(super::float).ok_or_else(|| Error::Number(text.to_owned()).into())
}

/// Unescapes a scanned string; an unpaired surrogate becomes U+FFFD.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        out.push_str(before);
        rest = match escape.as_bytes().first() {
            Some(b'u') => {
                let (c, after) = unicode(escape);
                out.push(c);
                after
            }
            Some(letter) => {
                out.push(simple(*letter));
                &escape[1..]
            }
            None => "",
        };
    }
    out.push_str(rest);
    out
}

fn simple(letter: u8) -> char {
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
fn unicode(escape: &str) -> (char, &str) {
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
