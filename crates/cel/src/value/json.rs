//! JSON documents as values. A schema determines the CEL type of each part (a string as a timestamp, a list as a set),
//! as in CRDs.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{List, Map, Value, time};
use crate::error::Error;

/// The schema of a part of a document.
pub trait Schema: fmt::Debug + Sync {
    /// Returns the schema type of the part.
    fn form(&self) -> Form;

    /// Whether the part may be `null`.
    fn nullable(&self) -> bool {
        false
    }

    /// Returns the schema of a field, by its unescaped name.
    fn property(&self, name: &str) -> Option<&dyn Schema>;

    /// Returns the schema of a list's elements or a map's values.
    fn element(&self) -> Option<&dyn Schema>;

    /// The key fields of a [`Form::MapList`] (`x-kubernetes-list-map-keys`).
    fn keys(&self) -> &[String] {
        &[]
    }
}

/// The schema type of a part of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with properties, whose names are escaped for expressions.
    Object,
    /// A map with values of one type (`additionalProperties`).
    Map,
    /// An object without declared fields.
    Opaque,
    /// An atomic list.
    List,
    /// A list of type `set`, whose order is irrelevant.
    SetList,
    /// A list of type `map`, whose elements are identified by key fields.
    MapList,
    /// A string.
    String,
    /// A base64 string (`byte`), converted to bytes.
    Bytes,
    /// A `date` string, converted to a timestamp.
    Date,
    /// A `date-time` string, converted to a timestamp.
    DateTime,
    /// A `duration` string, converted to a duration.
    Duration,
    /// A floating-point number.
    Number,
    /// An integer.
    Integer,
    /// A boolean.
    Boolean,
    /// An integer or a string (`x-kubernetes-int-or-string`).
    IntOrString,
    /// A part with unknown fields preserved (`x-kubernetes-preserve-unknown-fields`) and no declared type.
    Unknown,
    /// An untyped part; field names at any depth may be written escaped.
    Open,
}

fn bad<T>(message: impl Into<Box<str>>) -> Result<T, Error> {
    Err(Error::failed(message))
}

pub(super) fn value<'a>(json: &'a Json, schema: Option<&'a dyn Schema>) -> Result<Value<'a>, Error> {
    let Some(schema) = schema else { return Ok(plain(json)) };
    if json.is_null() {
        return match schema.nullable() {
            true => Ok(Value::Null),
            false => bad("invalid data, got null for schema with nullable=false"),
        };
    }
    match (schema.form(), json) {
        (Form::Object | Form::Map | Form::Opaque, Json::Object(map)) => Ok(Value::Map(Map::Json(map, Some(schema)))),
        (Form::Object | Form::Map | Form::Opaque, _) => {
            bad("invalid data, expected a map for the provided schema with type=object")
        }
        (Form::List | Form::SetList | Form::MapList, Json::Array(list)) => {
            Ok(Value::List(List::Json(list, Some(schema))))
        }
        (Form::List | Form::SetList | Form::MapList, _) => {
            bad("invalid data, expected an array for the provided schema with type=array")
        }
        (Form::IntOrString, Json::String(text)) => Ok(Value::text(text)),
        (Form::IntOrString, json) => match json.as_i64() {
            Some(number) => Ok(Value::Int(number)),
            None => bad("invalid data, expected XIntOrString value to be either a string or integer"),
        },
        (Form::Number, json) => match json.as_f64() {
            Some(number) => Ok(Value::Double(number)),
            None => bad(format!("invalid data, expected float, got {}", go_type(json))),
        },
        (Form::Integer, json) => match json.as_i64() {
            Some(number) => Ok(Value::Int(number)),
            None => bad(format!("invalid data, expected int, got {}", go_type(json))),
        },
        (Form::Boolean, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (Form::Boolean, json) => bad(format!("invalid data, expected bool, got {}", go_type(json))),
        (Form::Unknown, json) => Ok(Value::Unknown(json)),
        (Form::Open, Json::Object(map)) => Ok(Value::Map(Map::Json(map, Some(schema)))),
        (Form::Open, Json::Array(list)) => Ok(Value::List(List::Json(list, Some(schema)))),
        (Form::Open, json) => Ok(plain(json)),
        (form, Json::String(text)) => formatted(form, text),
        (_, json) => bad(format!("invalid data, expected string, got {}", go_type(json))),
    }
}

fn formatted(form: Form, text: &str) -> Result<Value<'_>, Error> {
    match form {
        Form::Bytes => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(error) => bad(format!("Invalid byte formatted string {text}: {error}")),
        },
        Form::Date => match time::date(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => bad(format!("Invalid date formatted string {text}")),
        },
        Form::DateTime => match time::date_time(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => bad(format!("Invalid date-time formatted string {text}")),
        },
        Form::Duration => match time::lenient_duration(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => bad(format!("Invalid duration {text}: unable to parse {text} as duration")),
        },
        _ => Ok(Value::text(text)),
    }
}

fn plain(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::text(text),
        Json::Array(list) => Value::List(List::Json(list, None)),
        Json::Object(map) => Value::Map(Map::Json(map, None)),
    }
}

fn go_type(json: &Json) -> &'static str {
    match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    }
}
