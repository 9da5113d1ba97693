//! Type conversion functions.

use super::{Bodies, native::Native};
use crate::{
    error::Error,
    value::{Duration, Timestamp, Value, double_text, time},
};

pub(super) const BODIES: Bodies = &[
    ("bool", bool),
    ("bytes", bytes),
    ("double", double),
    ("duration", duration),
    ("int", int),
    ("string", string),
    ("timestamp", timestamp),
    ("type", type_of),
    ("uint", uint),
];

fn one<'v, 'a>(args: &'v mut [Value<'a>]) -> Result<&'v mut Value<'a>, Error> {
    args.first_mut().ok_or_else(Error::no_such_overload)
}

fn overflow() -> Error {
    Error::failed("integer overflow")
}

fn type_of<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(Value::Type(one(args)?.type_of()))
}

fn bool<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match one(args)? {
        Value::Bool(value) => Ok(Value::Bool(*value)),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(Error::failed("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn bytes<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match one(args)? {
        Value::Bytes(bytes) => Ok(Value::Bytes(bytes.clone())),
        Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
        _ => Err(Error::no_such_overload()),
    }
}

fn double<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(Value::Double(match one(args)? {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => {
            read_double(text).ok_or_else(|| Error::failed("type conversion error from 'string' to 'double'"))?
        }
        _ => return Err(Error::no_such_overload()),
    }))
}

/// Parses a double with Go's syntax.
pub(super) fn read_double(text: &str) -> Option<f64> {
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

fn int<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(Value::Int(match one(args)? {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) => {
            // Both bounds are excluded, because rounding to a double may hide an overflow.
            if !(value.is_finite() && *value > i64::MIN as f64 && *value < i64::MAX as f64) {
                return Err(overflow());
            }
            *value as i64
        }
        Value::String(text) => {
            number(text).ok_or_else(|| Error::failed("type conversion error from 'string' to 'int'"))?
        }
        Value::Timestamp(timestamp) => timestamp.seconds,
        Value::Duration(duration) => duration.0,
        _ => return Err(Error::no_such_overload()),
    }))
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

fn uint<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let overflow = || Error::failed("unsigned integer overflow");
    Ok(Value::Uint(match one(args)? {
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
            let value = if digits { number(text) } else { None };
            value.ok_or_else(|| Error::failed("type conversion error from 'string' to 'uint'"))?
        }
        _ => return Err(Error::no_such_overload()),
    }))
}

fn string<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let text = match one(args)? {
        Value::String(text) => return Ok(Value::String(text.clone())),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double_text(*value),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec())
            .map_err(|_| Error::failed("invalid UTF-8 in bytes, cannot convert to string"))?,
        Value::Timestamp(timestamp) => timestamp.to_string(),
        Value::Duration(duration) => duration.to_string(),
        Value::Native(native) if matches!(**native, Native::Ip(_) | Native::Cidr(_)) => native.to_string(),
        _ => return Err(Error::no_such_overload()),
    };
    Ok(Value::owned_text(text))
}

fn timestamp<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match one(args)? {
        Value::Timestamp(timestamp) => Ok(Value::Timestamp(*timestamp)),
        Value::Int(seconds) => in_range(Timestamp { seconds: *seconds, nanos: 0 }),
        Value::String(text) => match time::timestamp(text) {
            Some(timestamp) => in_range(timestamp),
            None => Err(Error::failed("type conversion error from 'string' to 'google.protobuf.Timestamp'")),
        },
        _ => Err(Error::no_such_overload()),
    }
}

fn in_range<'a>(timestamp: Timestamp) -> Result<Value<'a>, Error> {
    match timestamp.is_valid() {
        true => Ok(Value::Timestamp(timestamp)),
        false => Err(Error::failed("timestamp overflow")),
    }
}

fn duration<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match one(args)? {
        Value::Duration(duration) => Ok(Value::Duration(*duration)),
        Value::Int(nanos) => Ok(Value::Duration(Duration(*nanos))),
        Value::String(text) => match time::duration(text) {
            Some(duration) => Ok(Value::Duration(duration)),
            None => Err(Error::failed("type conversion error from 'string' to 'google.protobuf.Duration'")),
        },
        _ => Err(Error::no_such_overload()),
    }
}
