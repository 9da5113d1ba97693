//! Documents as values. A schema says how a part is seen (text as time, a list as a set), as custom resources do.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{List, Map, Value, time};
use crate::error::Error;

/// The schema of a part of a document.
pub trait Schema: fmt::Debug + Sync {
    /// How the part is seen.
    fn form(&self) -> Form;

    /// Whether it may be `null`.
    fn nullable(&self) -> bool {
        false
    }

    /// The schema of a field, by its name in the document.
    fn property(&self, name: &str) -> Option<&dyn Schema>;

    /// The schema of a list's elements or a map's values.
    fn element(&self) -> Option<&dyn Schema>;

    /// The fields that identify an element of a [`Form::MapList`].
    fn keys(&self) -> &[String] {
        &[]
    }
}

/// How a part of a document is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// An object with properties; their names are escaped for expressions.
    Object,
    /// A map whose values are alike.
    Map,
    /// An object of which no field is known.
    Opaque,
    /// A list.
    List,
    /// A list whose order does not matter.
    SetList,
    /// A list whose elements are identified by some of their fields.
    MapList,
    /// Text.
    String,
    /// Text in base64, seen as bytes.
    Bytes,
    /// A day, seen as a point in time.
    Date,
    /// A point in time.
    DateTime,
    /// A span of time.
    Duration,
    /// A floating-point number.
    Number,
    /// A whole number.
    Integer,
    /// Truth.
    Boolean,
    /// A whole number or text.
    IntOrString,
    /// What is kept without being known.
    Unknown,
    /// Whatever it is; the names of fields, however deep, may be written escaped.
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
