//! Converts CEL values to JSON, as protobuf's JSON mapping does.

use api::Value as Json;
use cel::{MapKey, Value};
use serde_json::{Map, Number};

/// The largest integer that JSON numbers represent exactly; larger ones become strings.
const SAFE: u64 = (1 << 53) - 1;
/// Maximum size of a document, in bytes. Values share their parts, so a small expression can yield a huge document.
const LARGEST: usize = 8 << 20;

/// Converts a value to JSON; an error if it has no JSON form or is too large.
pub fn document(value: &Value<'_>) -> Result<Json, String> {
    Writer { left: LARGEST }.value(value)
}

struct Writer {
    /// The remaining size, in bytes.
    left: usize,
}

impl Writer {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let too_large = || format!("the value is larger than {LARGEST} bytes");
        self.left = self.left.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<String, String> {
        self.spend(text.len())?;
        Ok(text.to_owned())
    }

    fn value(&mut self, value: &Value<'_>) -> Result<Json, String> {
        self.spend(8)?;
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
            Value::String(text) => Json::String(self.text(text)?),
            Value::List(list) => Json::Array(list.iter().map(|item| self.value(&item)).collect::<Result<_, _>>()?),
            Value::Map(map) => {
                let mut made = Map::new();
                for (key, value) in map.entries() {
                    let MapKey::String(name) = &key else {
                        return Err(format!("map key {key:?} is not a string"));
                    };
                    made.insert(self.text(name)?, self.value(&value)?);
                }
                Json::Object(made)
            }
            Value::Struct(fields) => {
                let mut made = Map::new();
                for (name, value) in &fields.1 {
                    made.insert(self.text(name)?, self.value(value)?);
                }
                Json::Object(made)
            }
            Value::Optional(Some(value)) => self.value(value)?,
            Value::Unknown(json) => {
                self.spend(json.to_string().len())?;
                (*json).clone()
            }
            other => match other.json_string() {
                Some(text) => Json::String(self.text(&text)?),
                None => return Err(format!("unsupported conversion of {} to JSON", other.type_of())),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use cel::{Activation, CostTracker, Environment};
    use serde_json::json;

    use super::*;

    fn check(source: &str, want: Result<Json, &str>) {
        let program = Environment::new().compile(source).unwrap().plan_program().unwrap();
        let value = program.run(&Activation::new(), &mut CostTracker::new(1_000_000)).unwrap();
        assert_eq!(document(&value), want.map_err(str::to_owned), "{source}");
    }

    #[test]
    fn values_are_written_as_protobuf_writes_them() {
        check("[1, -2]", Ok(json!([1, -2])));
        check("[1.5, 2.0]", Ok(json!([1.5, 2.0])));
        check("9007199254740991", Ok(json!(9_007_199_254_740_991_i64)));
        check("9007199254740993", Ok(json!("9007199254740993")));
        check("-9007199254740993", Ok(json!("-9007199254740993")));
        check("18446744073709551615u", Ok(json!("18446744073709551615")));
        check("{'a': 'b'}", Ok(json!({"a": "b"})));
        check("{1: 'b'}", Err("map key Int(1) is not a string"));
        check("optional.none()", Ok(json!(null)));
        check("optional.of('x')", Ok(json!("x")));
        check("timestamp('2020-01-02T03:04:05Z')", Ok(json!("2020-01-02T03:04:05Z")));
        check("duration('90s')", Ok(json!("90s")));
        check("b'abc'", Ok(json!("YWJj")));
        check("1.0 / 0.0", Err("inf is no number of JSON"));
        check("type(1)", Err("unsupported conversion of type to JSON"));
    }

    #[test]
    fn shared_parts_do_not_make_documents_without_end() {
        let text = "x".repeat(1 << 16);
        let list = Value::from_list(vec![Value::from_string(&text); 1 << 10]);
        let lists = Value::from_list(vec![list; 1 << 10]);
        assert_eq!(document(&lists), Err("the value is larger than 8388608 bytes".to_owned()));
    }
}
