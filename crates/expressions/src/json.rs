//! Converts CEL values to JSON, as protobuf's JSON mapping does.

use api::Value as Json;
use cel::{MapKey, Value};
use serde_json::{Map, Number};

/// The largest integer that JSON numbers represent exactly; larger ones become strings.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
/// Maximum size of a document, in bytes. Values share their parts, so a small expression can yield a huge document.
const MAX_DOCUMENT_BYTES: usize = 8 << 20;

/// A value without a JSON representation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JsonConversionError {
    /// The document exceeds the size limit.
    #[error("the value is larger than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge,
    /// The number is not finite.
    #[error("{0} is no number of JSON")]
    Number(f64),
    /// A map key is not a string.
    #[error("map key {0} is not a string")]
    MapKey(String),
    /// The type has no JSON representation.
    #[error("unsupported conversion of {0} to JSON")]
    Unsupported(String),
}

/// Converts a value to JSON; an error if it has no JSON form or is too large.
pub fn to_json(value: &Value<'_>) -> Result<Json, JsonConversionError> {
    JsonWriter { left: MAX_DOCUMENT_BYTES }.write_value(value)
}

struct JsonWriter {
    /// The remaining size, in bytes.
    left: usize,
}

impl JsonWriter {
    fn charge_bytes(&mut self, bytes: usize) -> Result<(), JsonConversionError> {
        self.left = self.left.checked_sub(bytes).ok_or(JsonConversionError::TooLarge)?;
        Ok(())
    }

    fn write_string(&mut self, text: &str) -> Result<String, JsonConversionError> {
        self.charge_bytes(text.len())?;
        Ok(text.to_owned())
    }

    fn write_value(&mut self, value: &Value<'_>) -> Result<Json, JsonConversionError> {
        self.charge_bytes(8)?;
        Ok(match value {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(number) if number.unsigned_abs() <= MAX_SAFE_INTEGER => Json::from(*number),
            Value::Int(number) => Json::String(number.to_string()),
            Value::Uint(number) if *number <= MAX_SAFE_INTEGER => Json::from(*number),
            Value::Uint(number) => Json::String(number.to_string()),
            Value::Double(number) => match Number::from_f64(*number) {
                Some(number) => Json::Number(number),
                None => return Err(JsonConversionError::Number(*number)),
            },
            Value::String(text) => Json::String(self.write_string(text)?),
            Value::List(list) => {
                Json::Array(list.iter().map(|item| self.write_value(&item)).collect::<Result<_, _>>()?)
            }
            Value::Map(map) => {
                let mut made = Map::new();
                for (key, value) in map.entries() {
                    let MapKey::String(name) = &key else {
                        return Err(JsonConversionError::MapKey(format!("{key:?}")));
                    };
                    made.insert(self.write_string(name)?, self.write_value(&value)?);
                }
                Json::Object(made)
            }
            Value::Struct(fields) => {
                let mut made = Map::new();
                for (name, value) in &fields.1 {
                    made.insert(self.write_string(name)?, self.write_value(value)?);
                }
                Json::Object(made)
            }
            Value::Optional(Some(value)) => self.write_value(value)?,
            Value::Unknown(json) => {
                self.charge_bytes(json.to_string().len())?;
                (*json).clone()
            }
            other => match other.json_string() {
                Some(text) => Json::String(self.write_string(&text)?),
                None => return Err(JsonConversionError::Unsupported(other.type_of().to_string())),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use cel::{Activation, CostTracker, Environment};
    use serde_json::json;

    use super::*;

    fn assert_json(source: &str, want: Result<Json, &str>) {
        let program = Environment::new().compile(source).unwrap().plan_program().unwrap();
        let value = program.run(&Activation::new(), &mut CostTracker::new(1_000_000)).unwrap();
        assert_eq!(to_json(&value).map_err(|error| error.to_string()), want.map_err(str::to_owned), "{source}");
    }

    #[test]
    fn values_are_converted_like_protobuf() {
        assert_json("[1, -2]", Ok(json!([1, -2])));
        assert_json("[1.5, 2.0]", Ok(json!([1.5, 2.0])));
        assert_json("9007199254740991", Ok(json!(9_007_199_254_740_991_i64)));
        assert_json("9007199254740993", Ok(json!("9007199254740993")));
        assert_json("-9007199254740993", Ok(json!("-9007199254740993")));
        assert_json("18446744073709551615u", Ok(json!("18446744073709551615")));
        assert_json("{'a': 'b'}", Ok(json!({"a": "b"})));
        assert_json("{1: 'b'}", Err("map key Int(1) is not a string"));
        assert_json("optional.none()", Ok(json!(null)));
        assert_json("optional.of('x')", Ok(json!("x")));
        assert_json("timestamp('2020-01-02T03:04:05Z')", Ok(json!("2020-01-02T03:04:05Z")));
        assert_json("duration('90s')", Ok(json!("90s")));
        assert_json("b'abc'", Ok(json!("YWJj")));
        assert_json("1.0 / 0.0", Err("inf is no number of JSON"));
        assert_json("type(1)", Err("unsupported conversion of type to JSON"));
    }

    #[test]
    fn oversized_documents_are_rejected() {
        let text = "x".repeat(1 << 16);
        let list = Value::from_list(vec![Value::from_string(&text); 1 << 10]);
        let lists = Value::from_list(vec![list; 1 << 10]);
        assert_eq!(to_json(&lists), Err(JsonConversionError::TooLarge));
    }
}
