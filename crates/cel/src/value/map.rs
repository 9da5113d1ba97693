//! Maps: objects of documents, and maps built by expressions.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value as Json;

use super::{Form, Schema, Text, Value, fuel, json};
use crate::{error::Error, escape};

/// A map.
#[derive(Clone)]
pub enum Map<'a> {
    /// A JSON object of a document, with its schema.
    Json(&'a serde_json::Map<String, Json>, Option<&'a dyn Schema>),
    /// A map built by an expression.
    Made(Arc<BTreeMap<Key<'a>, Value<'a>>>),
    /// The composed variables of the bindings, which are evaluated on first use.
    Composed,
}

/// A map key. Numerically equal keys are the same, whatever their type.
#[derive(Clone, Debug)]
pub enum Key<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A string.
    String(Text<'a>),
    /// A number with a fractional part.
    Double(f64),
    /// `null`.
    Null,
}

impl Key<'_> {
    fn rank(&self) -> (u8, i128, &str) {
        match self {
            Self::Bool(value) => (0, i128::from(*value), ""),
            Self::Int(value) => (1, i128::from(*value), ""),
            Self::Uint(value) => (1, i128::from(*value), ""),
            Self::String(text) => (2, 0, text),
            Self::Double(value) => (3, i128::from(value.to_bits()), ""),
            Self::Null => (4, 0, ""),
        }
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Key<'_> {}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl<'a> From<Key<'a>> for Value<'a> {
    fn from(key: Key<'a>) -> Self {
        match key {
            Key::Bool(value) => Self::Bool(value),
            Key::Int(value) => Self::Int(value),
            Key::Uint(value) => Self::Uint(value),
            Key::String(text) => Self::String(text),
            Key::Double(value) => Self::Double(value),
            Key::Null => Self::Null,
        }
    }
}

/// Converts a value to a key, if its type allows. Integral doubles become integer keys.
pub(crate) fn key<'a>(value: &Value<'a>) -> Option<Key<'a>> {
    Some(match value {
        Value::Bool(value) => Key::Bool(*value),
        Value::Int(value) => Key::Int(*value),
        Value::Uint(value) => Key::Uint(*value),
        Value::String(text) => Key::String(text.clone()),
        Value::Double(value) if *value == (*value as i64) as f64 => Key::Int(*value as i64),
        Value::Double(value) if *value == (*value as u64) as f64 => Key::Uint(*value as u64),
        Value::Double(value) => Key::Double(*value),
        Value::Null => Key::Null,
        _ => return None,
    })
}

impl fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

impl<'a> Map<'a> {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(map, _) => map.len(),
            Self::Made(map) => map.len(),
            Self::Composed => 0,
        }
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_zero(&self) -> bool {
        matches!(self, Self::Made(_) | Self::Json(_, None)) && self.is_empty()
    }

    /// Returns the value of a key; `None` if it is absent, an error if the type is not valid for a key of this map.
    pub fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Error> {
        match (self, key) {
            (Self::Json(..), Value::String(name)) => self.field(name),
            (Self::Json(_, Some(_)), _) => Err(Error::no_such_overload()),
            (Self::Json(_, None), _) => Ok(None),
            (Self::Composed, _) => Ok(None),
            (Self::Made(map), _) => Ok(self::key(key).and_then(|key| map.get(&key).cloned())),
        }
    }

    /// Returns the value of a field, by its escaped name.
    pub fn field(&self, name: &str) -> Result<Option<Value<'a>>, Error> {
        match self {
            Self::Json(map, None) => map.get(name).map(|value| json::value(value, None)).transpose(),
            Self::Json(map, Some(schema)) => typed(map, *schema, name),
            Self::Composed => Ok(None),
            Self::Made(map) => {
                // Looked up by a temporary key.
                let key = Key::String(Text::Shared(name.into()));
                Ok(map.get(&key).cloned())
            }
        }
    }

    /// Returns the keys, with field names escaped.
    pub fn keys(&self) -> Vec<Key<'a>> {
        match self {
            Self::Json(map, None) => map.keys().map(|key| Key::String(Text::Borrowed(key))).collect(),
            Self::Json(map, Some(schema)) => {
                let known = |name: &&'a String| match schema.form() {
                    Form::Object => schema.property(name).is_some(),
                    form => matches!(form, Form::Map | Form::Open),
                };
                map.keys().filter(known).map(|name| Key::String(shown(name, *schema))).collect()
            }
            Self::Made(map) => map.keys().cloned().collect(),
            Self::Composed => Vec::new(),
        }
    }

    /// Returns all entries; a value that does not conform to its schema is `null`.
    pub fn entries(&self) -> Vec<(Key<'a>, Value<'a>)> {
        let value = |key: &Key<'a>| self.find(&key.clone().into()).ok().flatten().unwrap_or(Value::Null);
        let entry = |key: Key<'a>| fuel::burn().then(|| (key.clone(), value(&key)));
        self.keys().into_iter().map_while(entry).collect()
    }
}

fn typed<'a>(
    map: &'a serde_json::Map<String, Json>,
    schema: &'a dyn Schema,
    name: &str,
) -> Result<Option<Value<'a>>, Error> {
    let object = schema.form() == Form::Object;
    let escaped = object || schema.form() == Form::Open;
    let Some(name) = (if escaped { escape::unescape(name) } else { Some(Cow::Borrowed(name)) }) else {
        return Ok(None);
    };
    let Some(value) = map.get(&*name) else { return Ok(None) };
    // A null field of an object counts as absent; a null value of a map does not.
    if object && value.is_null() {
        return Ok(None);
    }
    let property = match schema.form() {
        Form::Object => schema.property(&name),
        Form::Map | Form::Open => schema.element(),
        _ => None,
    };
    property.map(|schema| json::value(value, Some(schema))).transpose()
}

fn shown<'a>(name: &'a str, schema: &dyn Schema) -> Text<'a> {
    if schema.form() != Form::Object {
        return Text::Borrowed(name);
    }
    match escape::escape(name) {
        Some(Cow::Owned(escaped)) => Text::Shared(escaped.into()),
        _ => Text::Borrowed(name),
    }
}
