//! Canonicalizes scalars: integers in range, quantities, times, durations and base64 as Go writes them.

use base64::{Engine, prelude::BASE64_STANDARD};
use formats::go_base64;

use crate::{
    Value, duration,
    quantity::{self, Quantity},
    schema::FieldType,
    time,
};

/// Canonicalizes a scalar. `Err(Some)` describes a malformed value of the right JSON type, `Err(None)` a value of the
/// wrong one.
pub fn canonicalize_scalar(ty: &FieldType, value: &mut Value) -> Result<(), Option<String>> {
    match (ty, &mut *value) {
        (FieldType::String | FieldType::IntOrString, Value::String(_)) | (FieldType::Bool, Value::Bool(_)) => Ok(()),
        (FieldType::Int32 | FieldType::IntOrString, Value::Number(number)) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok()).map(drop).ok_or(None)
        }
        (FieldType::Int64, Value::Number(number)) => number.as_i64().map(drop).ok_or(None),
        (FieldType::Double, Value::Number(_)) => Ok(()),
        (FieldType::Quantity, Value::String(text)) if quantity::is_canonical(text) => Ok(()),
        (FieldType::Quantity, Value::String(text)) => replace_text(text, |text| Quantity::canonicalize(text.trim())),
        (FieldType::Quantity, other) => {
            *value = Value::String(Quantity::canonicalize(&other.to_string()).map_err(|error| error.to_string())?);
            Ok(())
        }
        (FieldType::Bytes, Value::String(text)) => {
            *text = go_base64::canonicalize(text).map_err(|error| error.0)?.unwrap_or_else(|| std::mem::take(text));
            Ok(())
        }
        (FieldType::Bytes, Value::Array(items)) => {
            let bytes: Option<Vec<u8>> = items.iter().map(|item| u8::try_from(item.as_u64()?).ok()).collect();
            *value = Value::String(BASE64_STANDARD.encode(bytes.ok_or(None)?));
            Ok(())
        }
        (FieldType::Duration, Value::String(text)) => {
            replace_text(text, |text| duration::try_parse(text).map(duration::format))
        }
        (FieldType::Time, Value::String(text)) if time::is_canonical(text) => Ok(()),
        (FieldType::Time, Value::String(text)) => {
            replace_text(text, |text| time::try_parse(text, false).map(time::format_seconds))
        }
        (FieldType::MicroTime, Value::String(text)) => {
            replace_text(text, |text| time::try_parse(text, true).map(time::format_micros))
        }
        _ => Err(None),
    }
}

fn replace_text<E: ToString>(text: &mut String, f: impl Fn(&str) -> Result<String, E>) -> Result<(), Option<String>> {
    *text = f(text).map_err(|error| error.to_string())?;
    Ok(())
}
