//! Builds a value from the YAML events of a document, bounding depth, memory and alias expansion.

use std::{borrow::Cow, collections::HashMap};

use base64::{Engine, prelude::BASE64_STANDARD};
use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput, Tag};

use super::{
    BooleanWords, YamlDocument, YamlError,
    resolve::{self, ResolvedScalar},
    syntax_error,
};
use crate::{Map, Value, budget::MemoryBudget, json};

const MERGE: &str = "<<";
/// Maximum number of reported duplicate keys.
const MAX_DUPLICATES: usize = 100;

/// Decodes the first document of a text.
pub fn decode_document(text: &str, booleans: BooleanWords) -> Result<YamlDocument, YamlError> {
    syntax_error::check_characters(text)?;
    // Comment events are disabled, also if another crate of the build enables the parser's feature for them.
    let mut options = Options::default();
    options.emit_comments = false;
    let mut builder = DocumentBuilder {
        text,
        booleans,
        open: Vec::new(),
        events: Parser::new_from_str_with_options(text, options),
        budget: MemoryBudget::default(),
        anchors: HashMap::new(),
        duplicates: Vec::new(),
    };
    let value = loop {
        match builder.next_event()? {
            (Event::StreamStart | Event::DocumentStart(..), _) => {}
            (Event::StreamEnd | Event::DocumentEnd, _) => break Value::Null,
            (event, _) => {
                let value = builder.build_node(event, 0)?;
                // The next event must be the end of the document; otherwise it is an error.
                builder.next_event()?;
                break value;
            }
        }
    };
    Ok(YamlDocument { value, duplicates: builder.duplicates })
}

struct DocumentBuilder<'a> {
    text: &'a str,
    booleans: BooleanWords,
    /// The open collections; `true` for a mapping.
    open: Vec<bool>,
    events: Parser<'a, StrInput<'a>>,
    budget: MemoryBudget,
    /// Values of completed anchors; an alias to an incomplete one would be recursive.
    anchors: HashMap<usize, Value>,
    duplicates: Vec<String>,
}

impl<'a> DocumentBuilder<'a> {
    /// Returns the next event and its line.
    fn next_event(&mut self) -> Result<(Event<'a>, usize), YamlError> {
        match self.events.next_event() {
            Some(Ok((event, span))) => Ok((event, span.start.line())),
            // Go ignores content after the end of a document.
            Some(Err(error)) if error.info().starts_with("invalid content after document end") => {
                Ok((Event::DocumentEnd, 0))
            }
            Some(Err(error)) => Err(syntax_error::translate_syntax_error(self.text, &error, self.open.last().copied())),
            None => Ok((Event::StreamEnd, 0)),
        }
    }

    fn build_node(&mut self, event: Event<'a>, depth: usize) -> Result<Value, YamlError> {
        if depth >= json::MAX_DEPTH {
            return Err(YamlError::Depth);
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => (self.build_scalar(text, style, tag.as_deref())?, anchor),
            Event::SequenceStart(_, anchor, _) => {
                self.open.push(false);
                let items = self.build_sequence(depth)?;
                self.open.pop();
                (items, anchor)
            }
            Event::MappingStart(_, anchor, _) => {
                self.open.push(true);
                let map = self.build_mapping(depth)?;
                self.open.pop();
                (map, anchor)
            }
            Event::Alias(id) => (self.resolve_alias(id)?, 0),
            _ => return Err(YamlError::Value("did not find expected node content".to_owned())),
        };
        if anchor != 0 {
            let copy = self.copy_value(&value)?;
            self.anchors.insert(anchor, copy);
        }
        Ok(value)
    }

    fn build_sequence(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut items = Vec::new();
        loop {
            match self.next_event()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(items)),
                (event, _) => {
                    self.budget.charge_list_element()?;
                    items.push(self.build_node(event, depth + 1)?);
                }
            }
        }
    }

    fn build_mapping(&mut self, depth: usize) -> Result<Value, YamlError> {
        let mut map = Map::new();
        loop {
            let key = match self.next_event()? {
                (Event::MappingEnd, _) => return Ok(Value::Object(map)),
                (Event::Scalar(text, ScalarStyle::Plain, 0, None), _) if text == MERGE => None,
                (event, _) => {
                    let key = self.build_node(event, depth + 1)?;
                    Some(self.json_key(key)?)
                }
            };
            let (event, line) = self.next_event()?;
            let value = self.build_node(event, depth + 1)?;
            match key {
                Some(key) => self.insert_entry(&mut map, key, value, line)?,
                None => self.merge_entries(&mut map, value, line)?,
            }
        }
    }

    fn insert_entry(&mut self, map: &mut Map, key: String, value: Value, line: usize) -> Result<(), YamlError> {
        self.budget.charge_map_entry(map.len(), key.len())?;
        if self.duplicates.len() < MAX_DUPLICATES && map.contains_key(&key) {
            self.budget.charge_string(key.len() + 64)?;
            self.duplicates.push(format!("line {line}: key {key:?} already set in map"));
        }
        map.insert(key, value);
        Ok(())
    }

    /// Merges (`<<`) the entries of a mapping, or of a sequence of mappings, of which earlier ones take precedence.
    fn merge_entries(&mut self, map: &mut Map, value: Value, line: usize) -> Result<(), YamlError> {
        match value {
            Value::Object(entries) => {
                entries.into_iter().try_for_each(|(key, value)| self.insert_entry(map, key, value, line))
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                items.into_iter().rev().try_for_each(|item| self.merge_entries(map, item, line))
            }
            _ => Err(YamlError::Value("map merge requires map or sequence of maps as the value".to_owned())),
        }
    }

    /// Converts a mapping key to a JSON key.
    fn json_key(&self, key: Value) -> Result<String, YamlError> {
        match key {
            Value::String(text) => Ok(text),
            Value::Bool(value) => Ok(value.to_string()),
            Value::Number(number) if number.is_i64() => Ok(number.to_string()),
            Value::Number(number) => Ok((number.as_f64().unwrap_or_default() as f32).to_string()),
            Value::Null => Err(YamlError::Value("unsupported map key of type: null".to_owned())),
            Value::Array(_) | Value::Object(_) => Err(YamlError::Value("invalid map key".to_owned())),
        }
    }

    fn resolve_alias(&mut self, id: usize) -> Result<Value, YamlError> {
        let Some(value) = self.anchors.remove(&id) else {
            return Err(YamlError::Value("anchor value contains itself".to_owned()));
        };
        let copy = self.copy_value(&value).map_err(|_| YamlError::Aliasing);
        self.anchors.insert(id, value);
        copy
    }

    /// Copies a value, charging the budget before each allocation.
    fn copy_value(&mut self, value: &Value) -> Result<Value, YamlError> {
        charge_value(&mut self.budget, value)?;
        Ok(value.clone())
    }

    fn build_scalar(&mut self, text: Cow<'a, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, YamlError> {
        let tag =
            tag.map(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:").map_or_else(String::new, Cow::into_owned));
        let scalar = match (tag.as_deref(), style) {
            (None, ScalarStyle::Plain) => match resolve::resolve_plain(&text) {
                ResolvedScalar::Bool(_)
                    if self.booleans == BooleanWords::Yaml12 && !text.starts_with(['t', 'T', 'f', 'F']) =>
                {
                    ResolvedScalar::Text
                }
                scalar => scalar,
            },
            (Some("binary"), _) => {
                let compact: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
                let bytes = BASE64_STANDARD.decode(compact);
                let bytes =
                    bytes.map_err(|_| YamlError::Value("!!binary value contains invalid base64 data".to_owned()))?;
                return self.build_string(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()));
            }
            (Some(tag @ ("null" | "bool" | "int" | "float")), _) => {
                let scalar = resolve::resolve_plain(&text);
                resolve_tagged(tag, &text, scalar)?
            }
            _ => ResolvedScalar::Text,
        };
        match scalar {
            ResolvedScalar::Null => Ok(Value::Null),
            ResolvedScalar::Bool(value) => Ok(value.into()),
            ResolvedScalar::Int(value) => Ok(value.into()),
            ResolvedScalar::Large(value) => Ok((value as f64).into()),
            ResolvedScalar::Float(value) => json_number(value),
            ResolvedScalar::Text | ResolvedScalar::Timestamp => self.build_string(text),
        }
    }

    fn build_string(&mut self, text: Cow<'a, str>) -> Result<Value, YamlError> {
        self.budget.charge_string(text.len())?;
        Ok(Value::String(text.into_owned()))
    }
}

/// Resolves a scalar with an explicit tag.
fn resolve_tagged(tag: &str, text: &str, scalar: ResolvedScalar) -> Result<ResolvedScalar, YamlError> {
    match (tag, scalar) {
        ("null", ResolvedScalar::Null) => Ok(ResolvedScalar::Null),
        ("bool", scalar @ ResolvedScalar::Bool(_)) => Ok(scalar),
        ("int", scalar @ (ResolvedScalar::Int(_) | ResolvedScalar::Large(_))) => Ok(scalar),
        ("float", scalar @ ResolvedScalar::Float(_)) => Ok(scalar),
        ("float", ResolvedScalar::Int(value)) => Ok(ResolvedScalar::Float(value as f64)),
        _ => {
            let excerpt: String = text.chars().take(64).collect();
            Err(YamlError::Value(format!("cannot decode !!str `{excerpt}` as a !!{tag}")))
        }
    }
}

/// Converts a float to a JSON number.
fn json_number(value: f64) -> Result<Value, YamlError> {
    json::from_float(value).ok_or(YamlError::Number(match value {
        f64::INFINITY => "+Inf",
        f64::NEG_INFINITY => "-Inf",
        _ => "NaN",
    }))
}

fn charge_value(budget: &mut MemoryBudget, value: &Value) -> Result<(), YamlError> {
    match value {
        Value::String(text) => budget.charge_string(text.len())?,
        Value::Array(items) => {
            for item in items {
                budget.charge_list_element()?;
                charge_value(budget, item)?;
            }
        }
        Value::Object(map) => {
            for (at, (key, value)) in map.iter().enumerate() {
                budget.charge_map_entry(at, key.len())?;
                charge_value(budget, value)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}
