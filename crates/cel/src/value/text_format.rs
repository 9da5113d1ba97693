//! Values as text: the results of `string()`, and values in error messages.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{ListValue, MapValue, Value};

/// Formats a double in Go's shortest form.
pub(crate) fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

impl Value<'_> {
    /// Returns the text of values that JSON represents as strings: timestamps, durations and bytes.
    pub fn json_string(&self) -> Option<String> {
        match self {
            Self::Timestamp(timestamp) => Some(timestamp.to_string()),
            Self::Duration(duration) => Some(duration.to_string()),
            Self::Bytes(bytes) => Some(STANDARD.encode(bytes)),
            _ => None,
        }
    }

    /// Formats the value as in `cel-go`'s error messages.
    pub(crate) fn display_text(&self) -> String {
        match self {
            Self::Null => "NULL_VALUE".into(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Uint(value) => value.to_string(),
            Self::Double(value) => format_double(*value),
            Self::String(text) => text.to_string(),
            Self::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Timestamp(timestamp) => timestamp.to_string(),
            Self::Duration(duration) => duration.go_format(),
            Self::List(list) => list_text(list),
            Self::Map(map) => map_text(map),
            Self::Type(ty) => ty.type_name().into(),
            Self::Optional(None) => "optional.none()".into(),
            Self::Optional(Some(value)) => format!("optional({})", value.display_text()),
            Self::Native(native) => native.to_string(),
            Self::Struct(made) => made.0.to_string(),
            Self::Unknown(json) => json.to_string(),
        }
    }
}

fn list_text(list: &ListValue<'_>) -> String {
    let items: Vec<_> = list.iter().map(|item| item.display_text()).collect();
    format!("[{}]", items.join(", "))
}

fn map_text(map: &MapValue<'_>) -> String {
    let entries: Vec<_> = map
        .entries()
        .into_iter()
        .map(|(key, value)| format!("{}: {}", Value::from(key).display_text(), value.display_text()))
        .collect();
    format!("{{{}}}", entries.join(", "))
}
