//! Builds a value from the YAML events of a document, bounding depth, memory and alias expansion.

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};

use super::{
    Error, Parsed, fault,
    resolve::{self, Scalar},
};
use crate::{Map, Value, budget::Budget, json};

const MERGE: &str = "<<";
/// Maximum number of reported duplicate keys.
const MAX_DUPLICATES: usize = 100;

/// Decodes the first document of a text.
pub fn document(text: &str) -> Result<Parsed, Error> {
    fault::characters(text)?;
    // Comment events are disabled, also if another crate of the build enables the parser's feature for them.
    let mut options = Options::default();
    options.emit_comments = false;
    let mut builder = Builder {
        text,
        open: Vec::new(),
        events: Parser::new_from_str_with_options(text, options),
        budget: Budget::default(),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
    };
    let value = loop {
        match builder.next()? {
            (Event::StreamStart | Event::DocumentStart(..), _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => break Value::Null,
            (event, _) => {
                let value = builder.node(event, 0)?;
                // The next event must be the end of the document; otherwise it is an error.
                builder.next()?;
                break value;
            }
        }
    };
    Ok(Parsed { value, duplicates: builder.duplicates })
}

struct Builder<'a> {
    text: &'a str,
    /// The open collections; `true` for a mapping.
    open: Vec<bool>,
    events: Parser<'a, StrInput<'a>>,
    budget: Budget,
    /// Values of completed anchors; an alias to an incomplete one would be recursive.
    anchors: HashMap<usize, Value>,
    duplicates: Vec<String>,
}

impl<'a> Builder<'a> {
    /// Returns the next event and its line.
    fn next(&mut self) -> Result<(Event<'a>, usize), Error> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            // Go ignores content after the end of a document.
            Some(Err(error)) if error.info().starts_with("invalid content after document end") => {
                Ok((Event::DocumentEnd, 0))
            }
            Some(Err(error)) => Err(fault::syntax(self.text, &error, self.open.last().copied())),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Value, Error> {
        if depth >= json::MAX_DEPTH {
            return Err(Error::Depth);
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (self.scalar(text, style, tag.as_deref())?, anchor),
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(false);
                let items = self.sequence(depth)?;
                self.open.pop();
                (items, anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(true);
                let map = self.mapping(depth)?;
                self.open.pop();
                (map, anchor)
            }
            Event::Alias(id) => (self.alias(id)?, 0),
            _ => return Err(Error::Value("did not find expected node content".to_owned())),
        };
        if anchor != 0 {
            let copy = self.copied(&value)?;
            self.anchors.insert(anchor, copy);
        }
        Ok(value)
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, Error> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, _) => {
                    self.budget.element()?;
                    items.push(self.node(event, depth + 1)?);
                }
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Error> {
        let mut map = Map::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Value::Object(map)),
                (Event::Scalar(text, ScalarStyle::Plain, 0, None), _) if text == MERGE => None,
                (event, _) => {
                    let key = self.node(event, depth + 1)?;
                    Some(self.key(key)?)
                }
            };
            let (event, line) = self.next()?;
            let value = self.node(event, depth + 1)?;
            match key {
                Some(key) => self.insert(&mut map, key, value, line)?,
                None => self.merge(&mut map, value, line)?,
            }
        }
    }

    fn insert(&mut self, map: &mut Map, key: String, value: Value, line: usize) -> Result<(), Error> {
        self.budget.entry(map.len(), key.len())?;
        if self.duplicates.len() < MAX_DUPLICATES && map.contains_key(&key) {
            self.budget.text(key.len() + 64)?;
            self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
        }
        map.insert(key, value);
        Ok(())
    }

    /// Merges (`<<`) the entries of a mapping, or of a sequence of mappings, of which earlier ones take precedence.
    fn merge(&mut self, map: &mut Map, value: Value, line: usize) -> Result<(), Error> {
        match value {
            Value::Object(entries) => {
                entries.into_iter().try_for_each(|(key, value)| self.insert(map, key, value, line))
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                items.into_iter().rev().try_for_each(|item| self.merge(map, item, line))
            }
            _ => Err(Error::Value("map merge requires map or sequence of maps as the value".to_owned())),
        }
    }

    /// Converts a mapping key to a JSON key.
    fn key(&self, key: Value) -> Result<String, Error> {
        match key {
            Value::String(text) => Ok(text),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Number(number) if number.is_i64() => Ok(number.to_string()),
            Value::Number(number) => Ok((number.as_f64().unwrap_or_default() as f32).to_string()),
            Value::Null => Err(Error::Value("unsupported map key of type: null".to_owned())),
            Value::Array(_) | Value::Object(_) => Err(Error::Value("invalid map key".to_owned())),
        }
    }

    fn alias(&mut self, id: usize) -> Result<Value, Error> {
        let Some(value) = self.anchors.remove(&id) else {
            return Err(Error::Value("anchor value contains itself".to_owned()));
        };
        let copy = self.copied(&value).map_err(|_| Error::Aliasing);
        self.anchors.insert(id, value);
        copy
    }

    /// Copies a value, charging the budget before each allocation.
    fn copied(&mut self, value: &Value) -> Result<Value, Error> {
        charge(&mut self.budget, value)?;
        Ok(value.clone())
    }

    fn scalar(&mut self, text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, Error> {
        let tag =
            tag.map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").map_or_else(String::new, Cow::into_owned));
        let scalar = match (tag.as_deref(), style) {
            (None, ScalarStyle::Plain) => resolve::plain(&text),
            (Some("binary"), _) => {
                let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let bytes = BASE64_STANDARD.decode(compact);
                let bytes =
                    bytes.map_err(|_| Error::Value("!!binary value contains invalid base64 data".to_owned()))?;
                return self.text(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()));
            }
            (Some(tag @ ("null" | "bool" | "int" | "float")), _) => {
                let scalar = resolve::plain(&text);
                tagged(tag, &text, scalar)?
            }
            _ => Scalar::Text,
        };
        match scalar {
            Scalar::Null => Ok(Value::Null),
            Scalar::Bool(value) => Ok(value.into()),
            Scalar::Int(value) => Ok(value.into()),
            Scalar::Large(value) => Ok((value as f64).into()),
            Scalar::Float(value) => number(value),
            Scalar::Text | Scalar::Timestamp => self.text(text),
        }
    }

    fn text(&mut self, text: Cow<'a, str>) -> Result<Value, Error> {
        self.budget.text(text.len())?;
        Ok(Value::String(text.into_owned()))
    }
}

/// Resolves a scalar with an explicit tag.
fn tagged(tag: &str, text: &str, scalar: Scalar) -> Result<Scalar, Error> {
    match (tag, scalar) {
        ("null", Scalar::Null) => Ok(Scalar::Null),
        ("bool", scalar @ Scalar::Bool(_)) => Ok(scalar),
        ("int", scalar @ (Scalar::Int(_) | Scalar::Large(_))) => Ok(scalar),
        ("float", scalar @ Scalar::Float(_)) => Ok(scalar),
        ("float", Scalar::Int(value)) => Ok(Scalar::Float(value as f64)),
        _ => {
            let shown: String = text.chars().take(64).collect();
            Err(Error::Value(format!("cannot decode !!str `{shown}` as a !!{tag}")))
        }
    }
}

/// Converts a float to a JSON number.
fn number(value: f64) -> Result<Value, Error> {
    json::float(value).ok_or(Error::Number(match value {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }))
}

fn charge(budget: &mut Budget, value: &Value) -> Result<(), Error> {
    match value {
        Value::String(text) => budget.text(text.len())?,
        Value::Array(items) => {
            for item in items {
                budget.element()?;
                charge(budget, item)?;
            }
        }
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                budget.entry(at, key.len())?;
                charge(budget, value)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}
