//! Canonicalizes scalars: integers in range, quantities, times, durations and base64 as Go writes them.

use base64::{Engine, prelude::BASE64_STANDARD};
use formats::bytes;

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
        (FieldType::Quantity, Value::String(text)) => replace_text(text, |text| Ok(Quantity::canonical(text.trim())?)),
        (FieldType::Quantity, other) => {
            *value = Value::String(Quantity::canonical(&other.to_string()).map_err(str::to_owned)?);
            Ok(())
        }
        (FieldType::Bytes, Value::String(text)) => {
            *text = bytes::canonical(text)?.unwrap_or_else(|| std::mem::take(text));
            Ok(())
        }
        (FieldType::Bytes, Value::Array(items)) => {
            let bytes: Option<Vec<u8>> = items.iter().map(|item| u8::try_from(item.as_u64()?).ok()).collect();
            *value = Value::String(BASE64_STANDARD.encode(bytes.ok_or(None)?));
            Ok(())
        }
        (FieldType::Duration, Value::String(text)) => {
            replace_text(text, |text| Ok(duration::write(duration::read(text)?)))
        }
        (FieldType::Time, Value::String(text)) if time::is_canonical(text) => Ok(()),
        (FieldType::Time, Value::String(text)) => {
            replace_text(text, |text| Ok(time::seconds(time::read(text, false)?)))
        }
        (FieldType::MicroTime, Value::String(text)) => {
            replace_text(text, |text| Ok(time::micros(time::read(text, true)?)))
        }
        _ => Err(None),
    }
}

fn replace_text(text: &mut String, canonical: impl Fn(&str) -> Result<String, String>) -> Result<(), Option<String>> {
    *text = canonical(text)?;
    Ok(())
}
