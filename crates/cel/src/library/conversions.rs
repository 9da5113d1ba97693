//! Type conversion functions.

use super::FunctionBodies;
use crate::{
    error::EvalError,
    value::{Duration, NativeValue, Timestamp, Value, format_double, time},
};

pub(super) const BODIES: FunctionBodies = &[
    ("bool", convert_to_bool),
    ("bytes", convert_to_bytes),
    ("double", convert_to_double),
    ("duration", convert_to_duration),
    ("int", convert_to_int),
    ("string", convert_to_string),
    ("timestamp", convert_to_timestamp),
    ("type", type_of),
    ("uint", convert_to_uint),
];

fn single_arg<'v, 'a>(args: &'v mut [Value<'a>]) -> Result<&'v mut Value<'a>, EvalError> {
    args.first_mut().ok_or_else(EvalError::no_such_overload)
}

fn overflow_error() -> EvalError {
    EvalError::new("integer overflow")
}

fn type_of<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Type(single_arg(args)?.type_of()))
}

fn convert_to_bool<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match single_arg(args)? {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(EvalError::new("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn convert_to_bytes<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match single_arg(args)? {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn convert_to_double<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Double(match single_arg(args)? {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => {
            parse_double(text).ok_or_else(|| EvalError::new("type conversion error from 'string' to 'double'"))?
        }
        _ => return Err(EvalError::no_such_overload()),
    }))
}

/// Parses a double with Go's syntax.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    match unsigned.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
        "nan" if unsigned == text => return Some(f64::NAN),
        _ => {}
    }
    if unsigned.is_empty() || !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn convert_to_int<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::Int(match single_arg(args)? {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| overflow_error())?,
        Value::Double(value) => {
            // Both bounds are excluded, because rounding to a double may hide an overflow.
            if !(value.is_finite() && *value > i64::MIN as f64 && *value < i64::MAX as f64) {
                return Err(overflow_error());
            }
            *value as i64
        }
        Value::String(text) => {
            parse_integer(text).ok_or_else(|| EvalError::new("type conversion error from 'string' to 'int'"))?
        }
        Value::Timestamp(timestamp) => timestamp.seconds,
        Value::Duration(duration) => duration.0,
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn parse_integer<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

fn convert_to_uint<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let overflow = || EvalError::new("unsigned integer overflow");
    Ok(Value::Uint(match single_arg(args)? {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) => {
            if !(value.is_finite() && *value >= 0.0 && *value < u64::MAX as f64) {
                return Err(overflow());
            }
            *value as u64
        }
        Value::String(text) => {
            let digits = text.bytes().all(|c| c.is_ascii_digit());
            let value = if digits { parse_integer(text) } else { None };
            value.ok_or_else(|| EvalError::new("type conversion error from 'string' to 'uint'"))?
        }
        _ => return Err(EvalError::no_such_overload()),
    }))
}

fn convert_to_string<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let text = match single_arg(args)? {
        Value::String(text) => return Ok(Value::String(text.clone())),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => format_double(*value),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| EvalError::new("invalid UTF-8 in bytes, cannot convert to string"))?,
        Value::Timestamp(timestamp) => timestamp.to_string(),
        Value::Duration(duration) => duration.to_string(),
        Value::Native(native) if matches!(**native, NativeValue::Ip(_) | NativeValue::Cidr(_)) => native.to_string(),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::from_owned_string(text))
}

fn convert_to_timestamp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match single_arg(args)? {
        Value::Timestamp(timestamp) => Ok(Value::Timestamp(*timestamp)),
        Value::Int(seconds) => checked_timestamp(Timestamp { seconds: *seconds, nanos: 0 }),
        Value::String(text) => match time::parse_timestamp(text) {
            Some(timestamp) => checked_timestamp(timestamp),
            None => Err(EvalError::new("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

fn checked_timestamp<'a>(timestamp: Timestamp) -> Result<Value<'a>, EvalError> {
    match timestamp.is_valid() {
        true => Ok(Value::Timestamp(timestamp)),
        false => Err(EvalError::new("timestamp overflow")),
    }
}

fn convert_to_duration<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match single_arg(args)? {
        Value::Duration(duration) => Ok(Value::Duration(*duration)),
        Value::Int(nanos) => Ok(Value::Duration(Duration(*nanos))),
        Value::String(text) => match time::parse_duration(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => Err(EvalError::new("type conversion error from 'string' to 'google.protobuf.Duration'")),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}
