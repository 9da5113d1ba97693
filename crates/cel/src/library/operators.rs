//! Arithmetic, ordering, membership and size operators.

use std::cmp::Ordering;

use super::{FunctionBodies, MAX_LIST_ITEMS, MAX_STRING_BYTES};
use crate::{
    error::EvalError,
    value::{self, Duration, Timestamp, Value, equality},
};

pub(super) const BODIES: FunctionBodies = &[
    ("_+_", add_values),
    ("_-_", subtract_values),
    ("_*_", multiply_values),
    ("_/_", divide_values),
    ("_%_", modulo_values),
    ("-_", negate_value),
    ("!_", logical_not),
    ("_<_", |args| compare_arguments(args, |order| order == Ordering::Less)),
    ("_<=_", |args| compare_arguments(args, |order| order != Ordering::Greater)),
    ("_>_", |args| compare_arguments(args, |order| order == Ordering::Greater)),
    ("_>=_", |args| compare_arguments(args, |order| order != Ordering::Less)),
    ("@in", value_in_container),
    ("size", value_size),
    ("cel.@mapInsert", map_insert),
];

const INT: &str = "integer overflow";
const UINT: &str = "unsigned integer overflow";
const TIMESTAMP: &str = "timestamp overflow";

fn overflow_error(what: &str) -> EvalError {
    EvalError::new(what)
}

fn add_values<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [left, right] = args else { return Err(EvalError::no_such_overload()) };
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(|| overflow_error(INT))?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(*b).ok_or_else(|| overflow_error(UINT))?),
        (Value::Double(a), Value::Double(b)) => Value::Double(*a + *b),
        (Value::String(a), Value::String(b)) => {
            if a.len() + b.len() > MAX_STRING_BYTES {
                return Err(EvalError::CostLimit);
            }
            Value::from_owned_string([&**a, &**b].concat())
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            if a.len() + b.len() > MAX_STRING_BYTES {
                return Err(EvalError::CostLimit);
            }
            Value::Bytes([&**a, &**b].concat().into())
        }
        (left @ Value::List(_), Value::List(b)) => {
            let Value::List(a) = std::mem::replace(left, Value::Null) else {
                return Err(EvalError::no_such_overload());
            };
            if a.len() + b.len() > MAX_LIST_ITEMS {
                return Err(EvalError::CostLimit);
            }
            Value::List(equality::concat_lists(a, b))
        }
        (Value::Duration(a), Value::Duration(b)) => checked_duration(a.0.checked_add(b.0))?,
        (Value::Timestamp(a), Value::Duration(b)) | (Value::Duration(b), Value::Timestamp(a)) => {
            shift_timestamp(*a, i128::from(b.0))?
        }
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn checked_duration<'a>(nanos: Option<i64>) -> Result<Value<'a>, EvalError> {
    nanos.map(|nanos| Value::Duration(Duration(nanos))).ok_or_else(|| overflow_error(INT))
}

fn shift_timestamp<'a>(from: Timestamp, nanos: i128) -> Result<Value<'a>, EvalError> {
    Timestamp::from_nanos(from.total_nanos() + nanos).map(Value::Timestamp).ok_or_else(|| overflow_error(TIMESTAMP))
}

fn subtract_values<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_sub(*b).ok_or_else(|| overflow_error(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_sub(*b).ok_or_else(|| overflow_error(UINT))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a - *b),
        [Value::Duration(a), Value::Duration(b)] => checked_duration(a.0.checked_sub(b.0))?,
        [Value::Timestamp(a), Value::Duration(b)] => shift_timestamp(*a, -i128::from(b.0))?,
        [Value::Timestamp(a), Value::Timestamp(b)] => {
            checked_duration(i64::try_from(a.total_nanos() - b.total_nanos()).ok())?
        }
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn multiply_values<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_mul(*b).ok_or_else(|| overflow_error(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(a.checked_mul(*b).ok_or_else(|| overflow_error(UINT))?),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a * *b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn divide_values<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(overflow_error("division by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_div(*b).ok_or_else(|| overflow_error(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(*a / *b),
        [Value::Double(a), Value::Double(b)] => Value::Double(*a / *b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn modulo_values<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            return Err(overflow_error("modulus by zero"));
        }
        [Value::Int(a), Value::Int(b)] => Value::Int(a.checked_rem(*b).ok_or_else(|| overflow_error(INT))?),
        [Value::Uint(a), Value::Uint(b)] => Value::Uint(*a % *b),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn negate_value<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(match args {
        [Value::Int(a)] => Value::Int(a.checked_neg().ok_or_else(|| overflow_error(INT))?),
        [Value::Double(a)] => Value::Double(-*a),
        _ => return Err(EvalError::no_such_overload()),
    })
}

fn logical_not<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match args {
        [Value::Bool(a)] => Ok(Value::Bool(!*a)),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn compare_arguments<'a>(args: &[Value<'a>], holds: impl Fn(Ordering) -> bool) -> Result<Value<'a>, EvalError> {
    let [left, right] = args else { return Err(EvalError::no_such_overload()) };
    let number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    match value::compare_values(left, right) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if number(left) && number(right) => Err(EvalError::new("NaN values cannot be ordered")),
        None => Err(EvalError::no_such_overload()),
    }
}

fn value_in_container<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match args {
        [value, Value::List(list)] => Ok(Value::Bool(equality::list_contains(list, value))),
        [value, Value::Map(map)] => Ok(Value::Bool(map.find_value(value)?.is_some())),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn value_size<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    match args {
        [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
            Ok(Value::Int(value.cost_size() as i64))
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn map_insert<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let [Value::Map(_), ..] = args else { return Err(EvalError::no_such_overload()) };
    let Value::Map(mut map) = std::mem::replace(&mut args[0], Value::Null) else {
        return Err(EvalError::no_such_overload());
    };
    match args {
        [_, key, value] => map = equality::insert_entry(map, key, std::mem::replace(value, Value::Null))?,
        [_, Value::Map(more)] => {
            for (key, value) in more.entries() {
                map = equality::insert_entry(map, &key.into(), value)?;
            }
        }
        _ => return Err(EvalError::no_such_overload()),
    }
    Ok(Value::Map(map))
}
