//! Maps: objects of documents, and maps built by expressions.

use std::{borrow::Cow, cmp::Ordering, collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value as Json;

use super::{Schema, SchemaType, StringValue, Value, fuel};
use crate::{error::EvalError, escape};

/// A map.
#[derive(Clone)]
pub enum MapValue<'a> {
    /// A JSON object of a document, with its schema.
    Json(&'a serde_json::Map<String, Json>, Option<&'a dyn Schema>),
    /// A map built by an expression.
    Made(Arc<BTreeMap<MapKey<'a>, Value<'a>>>),
    /// The composed variables of the activation, which are evaluated on first use.
    Composed,
}

/// A map key. Numerically equal keys are the same, whatever their type.
#[derive(Clone, Debug)]
pub enum MapKey<'a> {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A string.
    String(StringValue<'a>),
    /// A number with a fractional part.
    Double(f64),
    /// `null`.
    Null,
}

impl MapKey<'_> {
    fn sort_key(&self) -> (u8, i128, &str) {
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

impl PartialEq for MapKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.sort_key() == other.sort_key()
    }
}

impl Eq for MapKey<'_> {}

impl PartialOrd for MapKey<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MapKey<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sort_key().cmp(&other.sort_key())
    }
}

impl<'a> From<MapKey<'a>> for Value<'a> {
    fn from(key: MapKey<'a>) -> Self {
        match key {
            MapKey::Bool(value) => Self::Bool(value),
            MapKey::Int(value) => Self::Int(value),
            MapKey::Uint(value) => Self::Uint(value),
            MapKey::String(text) => Self::String(text),
            MapKey::Double(value) => Self::Double(value),
            MapKey::Null => Self::Null,
        }
    }
}

/// Converts a value to a key, if its type allows. Integral doubles become integer keys.
pub(crate) fn to_map_key<'a>(value: &Value<'a>) -> Option<MapKey<'a>> {
    Some(match value {
        Value::Bool(value) => MapKey::Bool(*value),
        Value::Int(value) => MapKey::Int(*value),
        Value::Uint(value) => MapKey::Uint(*value),
        Value::String(text) => MapKey::String(text.clone()),
        Value::Double(value) if *value == (*value as i64) as f64 => MapKey::Int(*value as i64),
        Value::Double(value) if *value == (*value as u64) as f64 => MapKey::Uint(*value as u64),
        Value::Double(value) => MapKey::Double(*value),
        Value::Null => MapKey::Null,
        _ => return None,
    })
}

impl fmt::Debug for MapValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries()).finish()
    }
}

impl<'a> MapValue<'a> {
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
    pub fn find_value(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        match (self, key) {
            (Self::Json(..), Value::String(name)) => self.find_field(name),
            (Self::Json(_, Some(_)), _) => Err(EvalError::no_such_overload()),
            (Self::Json(_, None), _) => Ok(None),
            (Self::Composed, _) => Ok(None),
            (Self::Made(map), _) => Ok(self::to_map_key(key).and_then(|key| map.get(&key).cloned())),
        }
    }

    /// Returns the value of a field, by its escaped name.
    pub fn find_field(&self, name: &str) -> Result<Option<Value<'a>>, EvalError> {
        match self {
            Self::Json(map, None) => map.get(name).map(|value| Value::from_json(value, None)).transpose(),
            Self::Json(map, Some(schema)) => typed_entry(map, *schema, name),
            Self::Composed => Ok(None),
            Self::Made(map) => {
                // Looked up by a temporary key.
                let key = MapKey::String(StringValue::Shared(name.into()));
                Ok(map.get(&key).cloned())
            }
        }
    }

    /// Returns the keys, with field names escaped.
    pub fn keys(&self) -> Vec<MapKey<'a>> {
        match self {
            Self::Json(map, None) => map.keys().map(|key| MapKey::String(StringValue::Borrowed(key))).collect(),
            Self::Json(map, Some(schema)) => {
                let known = |name: &&'a String| match schema.schema_type() {
                    SchemaType::Object => schema.property_schema(name).is_some(),
                    form => matches!(form, SchemaType::Map | SchemaType::Open),
                };
                map.keys().filter(known).map(|name| MapKey::String(escaped_name(name, *schema))).collect()
            }
            Self::Made(map) => map.keys().cloned().collect(),
            Self::Composed => Vec::new(),
        }
    }

    /// Returns all entries; a value that does not conform to its schema is `null`.
    pub fn entries(&self) -> Vec<(MapKey<'a>, Value<'a>)> {
        let value = |key: &MapKey<'a>| self.find_value(&key.clone().into()).ok().flatten().unwrap_or(Value::Null);
        let entry = |key: MapKey<'a>| fuel::consume_fuel().then(|| (key.clone(), value(&key)));
        self.keys().into_iter().map_while(entry).collect()
    }
}

fn typed_entry<'a>(
    map: &'a serde_json::Map<String, Json>,
    schema: &'a dyn Schema,
    name: &str,
) -> Result<Option<Value<'a>>, EvalError> {
    let object = schema.schema_type() == SchemaType::Object;
    let escaped = object || schema.schema_type() == SchemaType::Open;
    let Some(name) = (if escaped { escape::unescape_identifier(name) } else { Some(Cow::Borrowed(name)) }) else {
        return Ok(None);
    };
    let Some(value) = map.get(&*name) else { return Ok(None) };
    // A null field of an object counts as absent; a null value of a map does not.
    if object && value.is_null() {
        return Ok(None);
    }
    let property = match schema.schema_type() {
        SchemaType::Object => schema.property_schema(&name),
        SchemaType::Map | SchemaType::Open => schema.element_schema(),
        _ => None,
    };
    property.map(|schema| Value::from_json(value, Some(schema))).transpose()
}

fn escaped_name<'a>(name: &'a str, schema: &dyn Schema) -> StringValue<'a> {
    if schema.schema_type() != SchemaType::Object {
        return StringValue::Borrowed(name);
    }
    match escape::escape_identifier(name) {
        Some(Cow::Owned(escaped)) => StringValue::Shared(escaped.into()),
        _ => StringValue::Borrowed(name),
    }
}
