//! Canonicalizes scalars: integers in range, quantities, times, durations and base64 as Go writes them.

use base64::{Engine, prelude::BASE64_STANDARD};
use formats::bytes;

use crate::{
    Value, duration,
    quantity::{self, Quantity},
    schema::Ty,
    time,
};

/// Canonicalizes a scalar. `Err(Some)` describes a malformed value of the right JSON type, `Err(None)` a value of the
/// wrong one.
pub fn canonicalize_scalar(ty: &Ty, value: &mut Value) -> Result<(), Option<String>> {
    match (ty, &mut *value) {
        (Ty::String | Ty::IntOrString, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
        (Ty::Int32 | Ty::IntOrString, Value::Number(number)) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok()).map(drop).ok_or(None)
        }
        (Ty::Int64, Value::Number(number)) => number.as_i64().map(drop).ok_or(None),
        (Ty::Double, Value::Number(_)) => Ok(()),
        (Ty::Quantity, Value::String(text)) if quantity::is_canonical(text) => Ok(()),
        (Ty::Quantity, Value::String(text)) => replace_text(text, |text| Ok(Quantity::canonical(text.trim())?)),
        (Ty::Quantity, other) => {
            *value = Value::String(Quantity::canonical(&other.to_string()).map_err(str::to_owned)?);
            Ok(())
        }
        (Ty::Bytes, Value::String(text)) => {
            *text = bytes::canonical(text)?.unwrap_or_else(|| std::mem::take(text));
            Ok(())
        }
        (Ty::Bytes, Value::Array(items)) => {
            let bytes: Option<Vec<u8>> = items.iter().map(|item| u8::try_from(item.as_u64()?).ok()).collect();
            *value = Value::String(BASE64_STANDARD.encode(bytes.ok_or(None)?));
            Ok(())
        }
        (Ty::Duration, Value::String(text)) => replace_text(text, |text| Ok(duration::write(duration::read(text)?))),
        (Ty::Time, Value::String(text)) if time::is_canonical(text) => Ok(()),
        (Ty::Time, Value::String(text)) => replace_text(text, |text| Ok(time::seconds(time::read(text, false)?))),
        (Ty::MicroTime, Value::String(text)) => replace_text(text, |text| Ok(time::micros(time::read(text, true)?))),
        _ => Err(None),
    }
}

fn replace_text(text: &mut String, canonical: impl Fn(&str) -> Result<String, String>) -> Result<(), Option<String>> {
    *text = canonical(text)?;
    Ok(())
}
