//! Values. Values of a document borrow from it and are converted lazily, when an expression reaches them; values that
//! an expression computes are reference-counted.

mod authorizer;
pub(crate) mod equality;
pub(crate) mod fuel;
mod json;
pub(crate) mod map;
mod native;
mod schema;
mod semver;
mod text_format;
pub(crate) mod time;

use std::{fmt, ops::Deref, sync::Arc};

pub use self::{
    authorizer::{
        AuthorizationCheck, AuthorizationDecision, Authorizer, AuthorizerValue, CheckTarget, ResourceAttributes,
    },
    map::{MapKey, MapValue},
    native::NativeValue,
    schema::{Schema, SchemaType},
    time::{Duration, Timestamp},
};
pub(crate) use self::{
    equality::compare_values,
    native::{Cidr, NamedFormat},
    semver::Semver,
    text_format::format_double,
};
use crate::{error::EvalError, types::Type};

/// A CEL value.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    String(StringValue<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A timestamp.
    Timestamp(Timestamp),
    /// A duration.
    Duration(Duration),
    /// A list.
    List(ListValue<'a>),
    /// A map or an object.
    Map(MapValue<'a>),
    /// A type.
    Type(Type),
    /// An optional value.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of Kubernetes' libraries.
    Native(Arc<NativeValue>),
    /// A constructed object: its type and its fields.
    Struct(Arc<StructValue<'a>>),
    /// A part of a document without a schema; it supports only equality.
    Unknown(&'a serde_json::Value),
}

/// A constructed object's type name and fields.
pub type StructValue<'a> = (Box<str>, Vec<(Box<str>, Value<'a>)>);

/// A borrowed or shared string.
#[derive(Clone)]
pub enum StringValue<'a> {
    /// Borrowed from a document or program.
    Borrowed(&'a str),
    /// Computed by an expression.
    Shared(Arc<str>),
}

impl Deref for StringValue<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for StringValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A list of a document with its schema, or a list built by an expression. The latter keeps a schema only if it is a
/// `set` or `map` list.
#[derive(Clone)]
pub enum ListValue<'a> {
    /// A JSON array of a document, with its schema.
    Json(&'a Vec<serde_json::Value>, Option<&'a dyn Schema>),
    /// A list built by an expression.
    Made(Arc<Vec<Value<'a>>>, Option<&'a dyn Schema>),
}

impl fmt::Debug for ListValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|at| self.get(at))).finish()
    }
}

impl<'a> ListValue<'a> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(list, _) => list.len(),
            Self::Made(list, _) => list.len(),
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an element; fails if the document does not conform to its schema.
    pub fn get(&self, at: usize) -> Result<Value<'a>, EvalError> {
        let missing = || EvalError::new(format!("index out of bounds: {at}"));
        match self {
            Self::Json(list, schema) => {
                let item = list.get(at).ok_or_else(missing)?;
                json::convert_json(item, schema.and_then(|schema| schema.element_schema()))
            }
            Self::Made(list, _) => list.get(at).cloned().ok_or_else(missing),
        }
    }

    /// Iterates over all elements; an element that does not conform to its schema is `null`.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).map_while(|at| fuel::consume_fuel().then(|| self.get(at).unwrap_or(Value::Null)))
    }

    pub(crate) fn document_schema(&self) -> Option<&'a dyn Schema> {
        match self {
            Self::Json(_, schema) | Self::Made(_, schema) => *schema,
        }
    }
}

impl<'a> Value<'a> {
    /// Converts a part of a document by its schema; without one, by its JSON type.
    pub fn from_json(json: &'a serde_json::Value, schema: Option<&'a dyn Schema>) -> Result<Self, EvalError> {
        json::convert_json(json, schema)
    }

    /// Creates a borrowed string.
    pub fn from_string(text: &'a str) -> Self {
        Self::String(StringValue::Borrowed(text))
    }

    /// Creates a shared string.
    pub fn from_owned_string(text: impl Into<Arc<str>>) -> Self {
        Self::String(StringValue::Shared(text.into()))
    }

    /// Creates a list.
    pub fn from_list(values: Vec<Value<'a>>) -> Self {
        Self::List(ListValue::Made(Arc::new(values), None))
    }

    /// Creates an optional with a value.
    pub fn optional_of(value: Value<'a>) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// Returns the result of `type()`.
    pub fn type_of(&self) -> Type {
        match self {
            Self::Null => Type::Null,
            Self::Bool(_) => Type::Bool,
            Self::Int(_) => Type::Int,
            Self::Uint(_) => Type::Uint,
            Self::Double(_) => Type::Double,
            Self::String(_) => Type::String,
            Self::Bytes(_) => Type::Bytes,
            Self::Timestamp(_) => Type::Timestamp,
            Self::Duration(_) => Type::Duration,
            Self::List(_) => Type::list_of(Type::Dyn),
            Self::Map(_) | Self::Struct(_) => Type::map_of(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional_of(Type::Dyn),
            Self::Native(native) => Type::Native(native.type_name()),
            Self::Unknown(_) => Type::Dyn,
        }
    }

    /// Returns the result of `size()` for strings, bytes, lists and maps, and 1 for other values; the cost model uses
    /// it.
    pub(crate) fn cost_size(&self) -> u64 {
        match self {
            Self::String(text) => character_count(text) as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Native(native) => native.cost_size(),
            Self::Optional(Some(value)) => value.cost_size(),
            _ => 1,
        }
    }

    /// Traverses the value and everything in it, until the fuel is used up.
    pub(crate) fn traverse_elements(&self) {
        match self {
            Self::List(list) => list.iter().for_each(|item| item.traverse_elements()),
            Self::Map(map) => map.entries().iter().for_each(|(_, value)| value.traverse_elements()),
            Self::Optional(Some(value)) => value.traverse_elements(),
            Self::Struct(made) => made.1.iter().for_each(|(_, value)| value.traverse_elements()),
            _ => {}
        }
    }

    /// Whether the value is the zero value of its type.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Duration(duration) => duration.0 == 0,
            Self::Timestamp(timestamp) => *timestamp == Timestamp::ZERO,
            Self::List(ListValue::Made(list, _)) => list.is_empty(),
            Self::List(ListValue::Json(list, None)) => list.is_empty(),
            Self::Map(map) => map.is_zero(),
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

/// Returns the number of characters of a string.
pub(crate) fn character_count(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}
