//! Values as the recording program writes them.

use ferry_cel::{MapKey, MapValue, Type, Value};

/// Formats a value as the recording program does.
pub fn render_value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) => format!("double {}", render_double(*value)),
        Value::String(text) => serde_json::to_string(&**text).expect("text is JSON"),
        Value::Bytes(bytes) => format!("bytes {}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Value::Timestamp(timestamp) => format!("timestamp {timestamp}"),
        Value::Duration(duration) => format!("duration {}", duration.go_format()),
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(value)) => format!("optional {}", render_value(value)),
        Value::List(list) => {
            format!("[{}]", list.iter().map(|item| render_value(&item)).collect::<Vec<_>>().join(", "))
        }
        Value::Map(map) => render_entries(map),
        Value::Type(ty) => format!("type {}", render_type(ty)),
        other => format!("a {}", render_type(&other.type_of())),
    }
}

fn render_entries(map: &MapValue<'_>) -> String {
    let entry =
        |(key, value): (MapKey<'_>, Value<'_>)| format!("{}: {}", render_value(&key.into()), render_value(&value));
    let mut entries: Vec<_> = map.entries().into_iter().map(entry).collect();
    entries.sort();
    format!("{{{}}}", entries.join(", "))
}

fn render_type(ty: &Type) -> String {
    match ty {
        Type::List(_) => "list".into(),
        Type::Map(_) => "map".into(),
        Type::Optional(_) => "optional_type".into(),
        Type::Type(_) => "type".into(),
        Type::Null => "null_type".into(),
        Type::Timestamp => "google.protobuf.Timestamp".into(),
        Type::Duration => "google.protobuf.Duration".into(),
        other => other.to_string(),
    }
}

fn render_double(value: f64) -> String {
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    match value {
        value if value.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        value if value == 0.0 || (-4..6).contains(&exponent) => value.to_string(),
        _ => format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}
