//! JSON documents as values. A schema determines the CEL type of each part (a string as a timestamp, a list as a set),
//! as in CRDs.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{ListValue, MapValue, Schema, SchemaType, Value, time};
use crate::error::EvalError;

fn conversion_error<T>(message: impl Into<Box<str>>) -> Result<T, EvalError> {
    Err(EvalError::new(message))
}

pub(super) fn convert_json<'a>(json: &'a Json, schema: Option<&'a dyn Schema>) -> Result<Value<'a>, EvalError> {
    let Some(schema) = schema else { return Ok(convert_untyped(json)) };
    if json.is_null() {
        return match schema.is_nullable() {
            true => Ok(Value::Null),
            false => conversion_error("invalid data, got null for schema with nullable=false"),
        };
    }
    match (schema.schema_type(), json) {
        (SchemaType::Object | SchemaType::Map | SchemaType::Opaque, Json::Object(map)) => {
            Ok(Value::Map(MapValue::Json(map, Some(schema))))
        }
        (SchemaType::Object | SchemaType::Map | SchemaType::Opaque, _) => {
            conversion_error("invalid data, expected a map for the provided schema with type=object")
        }
        (SchemaType::List | SchemaType::SetList | SchemaType::MapList, Json::Array(list)) => {
            Ok(Value::List(ListValue::Json(list, Some(schema))))
        }
        (SchemaType::List | SchemaType::SetList | SchemaType::MapList, _) => {
            conversion_error("invalid data, expected an array for the provided schema with type=array")
        }
        (SchemaType::IntOrString, Json::String(text)) => Ok(Value::from_string(text)),
        (SchemaType::IntOrString, json) => match json.as_i64() {
            Some(number) => Ok(Value::Int(number)),
            None => conversion_error("invalid data, expected XIntOrString value to be either a string or integer"),
        },
        (SchemaType::Number, json) => match json.as_f64() {
            Some(number) => Ok(Value::Double(number)),
            None => conversion_error(format!("invalid data, expected float, got {}", go_type_name(json))),
        },
        (SchemaType::Integer, json) => match json.as_i64() {
            Some(number) => Ok(Value::Int(number)),
            None => conversion_error(format!("invalid data, expected int, got {}", go_type_name(json))),
        },
        (SchemaType::Boolean, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (SchemaType::Boolean, json) => {
            conversion_error(format!("invalid data, expected bool, got {}", go_type_name(json)))
        }
        (SchemaType::Unknown, json) => Ok(Value::Unknown(json)),
        (SchemaType::Open, Json::Object(map)) => Ok(Value::Map(MapValue::Json(map, Some(schema)))),
        (SchemaType::Open, Json::Array(list)) => Ok(Value::List(ListValue::Json(list, Some(schema)))),
        (SchemaType::Open, json) => Ok(convert_untyped(json)),
        (form, Json::String(text)) => convert_string(form, text),
        (_, json) => conversion_error(format!("invalid data, expected string, got {}", go_type_name(json))),
    }
}

fn convert_string(form: SchemaType, text: &str) -> Result<Value<'_>, EvalError> {
    match form {
        SchemaType::Bytes => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(error) => conversion_error(format!("Invalid byte formatted string {text}: {error}")),
        },
        SchemaType::Date => match time::parse_date(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => conversion_error(format!("Invalid date formatted string {text}")),
        },
        SchemaType::DateTime => match time::parse_date_time(text) {
            Some(timestamp) => Ok(Value::Timestamp(timestamp)),
            None => conversion_error(format!("Invalid date-time formatted string {text}")),
        },
        SchemaType::Duration => match time::parse_lenient_duration(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => conversion_error(format!("Invalid duration {text}: unable to parse {text} as duration")),
        },
        _ => Ok(Value::from_string(text)),
    }
}

fn convert_untyped(json: &Json) -> Value<'_> {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(number) => Value::Int(number),
            None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from_string(text),
        Json::Array(list) => Value::List(ListValue::Json(list, None)),
        Json::Object(map) => Value::Map(MapValue::Json(map, None)),
    }
}

fn go_type_name(json: &Json) -> &'static str {
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
