//! Values. Values of a document borrow from it and are converted lazily, when an expression reaches them; values that
//! an expression computes are reference-counted.

pub(crate) mod equal;
pub(crate) mod fuel;
mod json;
pub(crate) mod map;
mod text;
pub(crate) mod time;

use std::{fmt, ops::Deref, sync::Arc};

pub(crate) use self::{equal::compare, text::double_text};
pub use self::{
    json::{Form, Schema},
    map::{Key, Map},
    time::{Duration, Timestamp},
};
use crate::{error::Error, library::native::Native, types::Type};

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
    String(Text<'a>),
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// A timestamp.
    Timestamp(Timestamp),
    /// A duration.
    Duration(Duration),
    /// A list.
    List(List<'a>),
    /// A map or an object.
    Map(Map<'a>),
    /// A type.
    Type(Type),
    /// An optional value.
    Optional(Option<Arc<Value<'a>>>),
    /// A value of Kubernetes' libraries.
    Native(Arc<Native>),
    /// A constructed object: its type and its fields.
    Struct(Arc<Created<'a>>),
    /// A part of a document without a schema; it supports only equality.
    Unknown(&'a serde_json::Value),
}

/// A constructed object's type name and fields.
pub type Created<'a> = (Box<str>, Vec<(Box<str>, Value<'a>)>);

/// A borrowed or shared string.
#[derive(Clone)]
pub enum Text<'a> {
    /// Borrowed from a document or program.
    Borrowed(&'a str),
    /// Computed by an expression.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// A list of a document with its schema, or a list built by an expression. The latter keeps a schema only if it is a
/// `set` or `map` list.
#[derive(Clone)]
pub enum List<'a> {
    /// A JSON array of a document, with its schema.
    Json(&'a Vec<serde_json::Value>, Option<&'a dyn Schema>),
    /// A list built by an expression.
    Made(Arc<Vec<Value<'a>>>, Option<&'a dyn Schema>),
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|at| self.get(at))).finish()
    }
}

impl<'a> List<'a> {
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
    pub fn get(&self, at: usize) -> Result<Value<'a>, Error> {
        let missing = || Error::failed(format!("index out of bounds: {at}"));
        match self {
            Self::Json(list, schema) => {
                let item = list.get(at).ok_or_else(missing)?;
                json::value(item, schema.and_then(|schema| schema.element()))
            }
            Self::Made(list, _) => list.get(at).cloned().ok_or_else(missing),
        }
    }

    /// Iterates over all elements; an element that does not conform to its schema is `null`.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).map_while(|at| fuel::burn().then(|| self.get(at).unwrap_or(Value::Null)))
    }

    pub(crate) fn schema(&self) -> Option<&'a dyn Schema> {
        match self {
            Self::Json(_, schema) | Self::Made(_, schema) => *schema,
        }
    }
}

impl<'a> Value<'a> {
    /// Converts a part of a document by its schema; without one, by its JSON type.
    pub fn document(json: &'a serde_json::Value, schema: Option<&'a dyn Schema>) -> Result<Self, Error> {
        json::value(json, schema)
    }

    /// Creates a borrowed string.
    pub fn text(text: &'a str) -> Self {
        Self::String(Text::Borrowed(text))
    }

    /// Creates a shared string.
    pub fn owned_text(text: impl Into<Arc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    /// Creates a list.
    pub fn list(values: Vec<Value<'a>>) -> Self {
        Self::List(List::Made(Arc::new(values), None))
    }

    /// Creates an optional with a value.
    pub fn some(value: Value<'a>) -> Self {
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
            Self::List(_) => Type::list(Type::Dyn),
            Self::Map(_) | Self::Struct(_) => Type::map(Type::Dyn, Type::Dyn),
            Self::Type(_) => Type::Type(None),
            Self::Optional(_) => Type::optional(Type::Dyn),
            Self::Native(native) => Type::Native(native.type_name()),
            Self::Unknown(_) => Type::Dyn,
        }
    }

    /// Returns the result of `size()` for strings, bytes, lists and maps, and 1 for other values; the cost model uses
    /// it.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::String(text) => characters(text) as u64,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::List(list) => list.len() as u64,
            Self::Map(map) => map.len() as u64,
            Self::Native(native) => native.size(),
            Self::Optional(Some(value)) => value.size(),
            _ => 1,
        }
    }

    /// Traverses the value and everything in it, until the fuel is used up.
    pub(crate) fn visit(&self) {
        match self {
            Self::List(list) => list.iter().for_each(|item| item.visit()),
            Self::Map(map) => map.entries().iter().for_each(|(_, value)| value.visit()),
            Self::Optional(Some(value)) => value.visit(),
            Self::Struct(made) => made.1.iter().for_each(|(_, value)| value.visit()),
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
            Self::List(List::Made(list, _)) => list.is_empty(),
            Self::List(List::Json(list, None)) => list.is_empty(),
            Self::Map(map) => map.is_zero(),
            Self::Optional(value) => value.is_none(),
            _ => false,
        }
    }
}

/// Returns the number of characters of a string.
pub(crate) fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}
