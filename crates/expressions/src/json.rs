//! Values of expressions as documents, as protobuf writes them in JSON.

use api::Value as Json;
use cel::{Key, Value};
use serde_json::{Map, Number};

/// The largest whole number that JSON is trusted with; beyond it they are text.
const SAFE: u64 = (1 << 53) - 1;

/// The document of a value; an error if there is none.
pub fn document(value: &Value<'_>) -> Result<Json, String> {
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) if number.unsigned_abs() <= SAFE => Json::from(*number),
        Value::Int(number) => Json::String(number.to_string()),
        Value::Uint(number) if *number <= SAFE => Json::from(*number),
        Value::Uint(number) => Json::String(number.to_string()),
        Value::Double(number) => match Number::from_f64(*number) {
            Some(number) => Json::Number(number),
            None => return Err(format!("{number} is no number of JSON")),
        },
        Value::String(text) => Json::String(text.to_string()),
        Value::List(list) => Json::Array(list.iter().map(|item| document(&item)).collect::<Result<_, _>>()?),
        Value::Map(map) => {
            let mut made = Map::new();
            for (key, value) in map.entries() {
                let Key::String(name) = &key else {
                    return Err(format!("map key {key:?} is not a string"));
                };
                made.insert(name.to_string(), document(&value)?);
            }
            Json::Object(made)
        }
        Value::Struct(fields) => {
            let field = |(name, value): &(Box<str>, Value<'_>)| Ok((name.to_string(), document(value)?));
            Json::Object(fields.1.iter().map(field).collect::<Result<_, String>>()?)
        }
        Value::Optional(Some(value)) => document(value)?,
        Value::Unknown(json) => (*json).clone(),
        other => match other.written() {
            Some(text) => Json::String(text),
            None => return Err(format!("unsupported conversion of {} to JSON", other.type_of())),
        },
    })
}
