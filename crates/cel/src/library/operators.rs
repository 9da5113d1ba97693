//! Arithmetic, ordering, membership and size operators.

use std::cmp::Ordering;

use super::{Bodies, MOST_BYTES, MOST_ITEMS};
use crate::{
    error::Error,
    value::{self, Duration, Timestamp, Value, equal},
};

pub(super) const BODIES: Bodies = &[
    ("_+_", add),
    ("_-_", subtract),
    ("_*_", multiply),
    ("_/_", divide),
    ("_%_", remainder),
    ("-_", negate),
    ("!_", not),
    ("_<_", |args| order(args, |order| order == Ordering::Less)),
    ("_<=_", |args| order(args, |order| order != Ordering::Greater)),
    ("_>_", |args| order(args, |order| order == Ordering::Greater)),
    ("_>=_", |args| order(args, |order| order != Ordering::Less)),
    ("@in", is_in),
    ("size", size),
    ("cel.@mapInsert", map_insert),
];

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";
const TIMESTAMP: &str = "timestamp overflow";

fn overflow(what: &str) -> Error {
    Error::failed(what)
}

fn add<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let [left, right] = args else { return Err(Error::no_such_overload()) };
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(|| overflow(INT))?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(*b).ok_or_else(|| overflow(UINT))?),
        (Value::Double(a), Value::Double(b)) => Value::Double(*a + *b),
        (Value::String(a), Value::String(b)) => {
            if a.len() + b.len() > MOST_BYTES {
                return Err(Error::CostLimit);
            }
            Value::owned_text([&**a, &**b].concat())
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            if a.len() + b.len() > MOST_BYTES {
                return Err(Error::CostLimit);
            }
            Value::Bytes([&**a, &**b].concat().into())
        }
        (left @ Value::List(_), Value::List(b)) => {
            let Value::List(a) = std::mem::replace(left, Value::Null) else { return Err(Error::no_such_overload()) };
            if a.len() + b.len() > MOST_ITEMS {
                return Err(Error::CostLimit);
            }
            Value::List(equal::join(a, b))
        }
        (Value::Duration(a), Value::Duration(b)) => span(a.0.checked_add(b.0))?,
        (Value::Timestamp(a), Value::Duration(b)) | (Value::Duration(b), Value::Timestamp(a)) => {
            shift(*a, i128::from(b.0))?
        }
        _ => return Err(Error::no_such_overload()),
    })
}

fn span<'a>(nanos: Option<i64>) -> Result<Value<'a>, Error> {
    nanos.map(|nanos| Value::Duration(Duration(nanos))).ok_or_else(|| overflow(INT))
}

fn shift<'a>(from: Timestamp, nanos: i128) -> Result<Value<'a>, Error> {
    Timestamp::from_nanos(from.total_nanos() + nanos).map(Value::Timestamp).ok_or_else(|| overflow(TIMESTAMP))
}

fn subtract<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or_else(|| overflow(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or_else(|| overflow(UINT))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a - *b),
        [Value::Duration(a), Value::Duration(b)] => span(a.0.checked_sub(b.0))?,
        [Value::Timestamp(a), Value::Duration(b)] => shift(*a, -i128::from(b.0))?,
        [Value::Timestamp(a), Value::Timestamp(b)] => span(i64::try_from(a.total_nanos() - b.total_nanos()).ok())?,
        _ => return Err(Error::no_such_overload()),
    })
}

fn multiply<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or_else(|| overflow(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or_else(|| overflow(UINT))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a * *b),
        _ => return Err(Error::no_such_overload()),
    })
}

fn divide<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(overflow("division by zero")),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or_else(|| overflow(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(*a / *b),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a / *b),
        _ => return Err(Error::no_such_overload()),
    })
}

fn remainder<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => return Err(overflow("modulus by zero")),
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or_else(|| overflow(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(*a % *b),
        _ => return Err(Error::no_such_overload()),
    })
}

fn negate<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or_else(|| overflow(INT))?),
        [Value::Double(a)] => Value::Double(-*a),
        _ => return Err(Error::no_such_overload()),
    })
}

fn not<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match args {
        [Value::Bool(a)] => Ok(Value::Bool(!*a)),
        _ => Err(Error::no_such_overload()),
    }
}

fn order<'a>(args: &[Value<'a>], holds: impl Fn(Ordering) -> bool) -> Result<Value<'a>, Error> {
    let [left, right] = args else { return Err(Error::no_such_overload()) };
    let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    match value::compare(left, right) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if number(left) && number(right) => Err(Error::failed("NaN values cannot be ordered")),
        None => Err(Error::no_such_overload()),
    }
}

fn is_in<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match args {
        [value, Value::List(list)] => Ok(Value::Bool(equal::contains(list, value))),
        [value, Value::Map(map)] => Ok(Value::Bool(map.find(value)?.is_some())),
        _ => Err(Error::no_such_overload()),
    }
}

fn size<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(value.size() as i64))
        }
        _ => Err(Error::no_such_overload()),
    }
}

fn map_insert<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let [Value::Map(_), ..] = args else { return Err(Error::no_such_overload()) };
    let Value::Map(mut map) = std::mem::replace(&mut args[0], Value::Null) else {
        return Err(Error::no_such_overload());
    };
    match args {
        [_, key, value] => map = equal::insert(map, key, std::mem::replace(value, Value::Null))?,
        [_, Value::Map(more)] => {
            for (key, value) in more.entries() {
                map = equal::insert(map, &key.into(), value)?;
            }
        }
        _ => return Err(Error::no_such_overload()),
    }
    Ok(Value::Map(map))
}
