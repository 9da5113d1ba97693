//! Scalars in canonical form: numbers that fit, quantities, times, durations and base64 as Go would write them.

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::{Value, duration, quantity::Quantity, schema::Ty, time};

const QUANTITY: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Makes a scalar canonical; the error says what is wrong with a value of the right JSON type, and nothing of the wrong one.
pub fn canonical(ty: &Ty, value: &mut Value) -> Result<(), Option<String>> {
    match (ty, &mut *value) {
        (Ty::String | Ty::IntOrString, Value::String(_)) | (Ty::Bool, Value::Bool(_)) => Ok(()),
        (Ty::Int32 | Ty::IntOrString, Value::Number(number)) => {
            number.as_i64().and_then(|number| i32::try_from(number).ok()).map(drop).ok_or(None)
        }
        (Ty::Int64, Value::Number(number)) => number.as_i64().map(drop).ok_or(None),
        (Ty::Double, Value::Number(_)) => Ok(()),
        (Ty::Quantity, Value::String(text)) => {
            let canonical = quantity(text.trim())?;
            if canonical != *text {
                *text = canonical;
            }
            Ok(())
        }
        (Ty::Quantity, Value::Number(number)) => {
            *value = Value::String(quantity(&number.to_string())?);
            Ok(())
        }
        (Ty::Bytes, Value::String(text)) => bytes(text),
        (Ty::Duration, Value::String(text)) => {
            let nanos = duration::parse(text).ok_or_else(|| format!("time: invalid duration {text:?}"))?;
            *text = duration::write(nanos);
            Ok(())
        }
        (Ty::Time, Value::String(text)) => instant(text, time::seconds),
        (Ty::MicroTime, Value::String(text)) => instant(text, time::micros),
        _ => Err(None),
    }
}

fn quantity(text: &str) -> Result<String, Option<String>> {
    Quantity::parse(text).map(|quantity| quantity.to_string()).ok_or_else(|| Some(QUANTITY.to_owned()))
}

/// Base64, in which Go skips line ends.
fn bytes(text: &mut String) -> Result<(), Option<String>> {
    if text.contains(['\n', '\r']) {
        text.retain(|c| !matches!(c, '\n' | '\r'));
    }
    match BASE64_STANDARD.decode(text.as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => {
            let at = match error {
                base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
                base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() & !3,
            };
            Err(Some(format!("illegal base64 data at input byte {at}")))
        }
    }
}

fn instant(text: &mut String, write: fn(jiff::Timestamp) -> String) -> Result<(), Option<String>> {
    let Some(time) = time::parse(text) else {
        const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
        return Err(Some(format!("parsing time {text:?} as {LAYOUT:?}: cannot parse {text:?} as \"2006\"")));
    };
    let canonical = write(time);
    if canonical != *text {
        *text = canonical;
    }
    Ok(())
}
