//! The text of values in templates.

use api::Value;

/// The text of a value as Go prints it; numbers of JSON are floats there.
pub fn print_value(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::Number(number) => print_number(number),
        Value::Array(items) => format!("[{}]", items.iter().map(print_inner).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{}", print_inner(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        other => api::json::go_value(other),
    }
}

/// The text of a value within another.
pub fn print_inner(value: &Value) -> String {
    if value.is_null() { "<nil>".to_owned() } else { print_value(value) }
}

fn print_number(number: &serde_json::Number) -> String {
    match number.as_i64() {
        Some(integer) if integer.unsigned_abs() < 1 << 53 => integer.to_string(),
        Some(integer) => api::json::go_float(integer as f64),
        None => number.as_f64().map(api::json::go_float).unwrap_or_default(),
    }
}
