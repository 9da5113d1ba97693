//! Optional values.

use super::FunctionBodies;
use crate::{
    error::EvalError,
    value::{ListValue, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("optional.none", |_| Ok(Value::Optional(None))),
    ("optional.of", |args| Ok(Value::optional_of(std::mem::replace(&mut args[0], Value::Null)))),
    ("optional.ofNonZeroValue", |args| match args[0].is_zero() {
        true => Ok(Value::Optional(None)),
        false => Ok(Value::optional_of(std::mem::replace(&mut args[0], Value::Null))),
    }),
    ("hasValue", |args| Ok(Value::Bool(optional_arg(&args[0])?.is_some()))),
    ("value", |args| match optional_arg(&args[0])? {
        Some(value) => Ok(value.clone()),
        None => Err(EvalError::new("optional.none() dereference")),
    }),
    ("first", |args| list_end(&args[0], |list| list.get(0))),
    ("last", |args| list_end(&args[0], |list| list.get(list.len() - 1))),
    ("optional.unwrap", unwrap_optionals),
    ("unwrapOpt", unwrap_optionals),
];

fn optional_arg<'v, 'a>(value: &'v Value<'a>) -> Result<Option<&'v Value<'a>>, EvalError> {
    match value {
        Value::Optional(value) => Ok(value.as_deref()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn list_end<'a>(
    list: &Value<'a>,
    get: fn(&ListValue<'a>) -> Result<Value<'a>, EvalError>,
) -> Result<Value<'a>, EvalError> {
    match list {
        Value::List(list) if list.is_empty() => Ok(Value::Optional(None)),
        Value::List(list) => get(list).map(Value::optional_of),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn unwrap_optionals<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let Value::List(list) = &args[0] else { return Err(EvalError::no_such_overload()) };
    let mut present = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => present.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(EvalError::new(format!("value {} is not optional", other.display_text()))),
        }
    }
    Ok(Value::from_list(present))
}
