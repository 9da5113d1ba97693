//! Optional values.

use super::Bodies;
use crate::{
    error::Error,
    value::{List, Value},
};

pub(super) const BODIES: Bodies = &[
    ("optional.none", |_| Ok(Value::Optional(None))),
    ("optional.of", |args| Ok(Value::some(std::mem::replace(&mut args[0], Value::Null)))),
    ("optional.ofNonZeroValue", |args| match args[0].is_zero() {
        true => Ok(Value::Optional(None)),
        false => Ok(Value::some(std::mem::replace(&mut args[0], Value::Null))),
    }),
    ("hasValue", |args| Ok(Value::Bool(optional(&args[0])?.is_some()))),
    ("value", |args| match optional(&args[0])? {
        Some(value) => Ok(value.clone()),
        None => Err(Error::failed("optional.none() dereference")),
    }),
    ("first", |args| end(&args[0], |list| list.get(0))),
    ("last", |args| end(&args[0], |list| list.get(list.len() - 1))),
    ("optional.unwrap", unwrap),
    ("unwrapOpt", unwrap),
];

fn optional<'v, 'a>(value: &'v Value<'a>) -> Result<Option<&'v Value<'a>>, Error> {
    match value {
        Value::Optional(value) => Ok(value.as_deref()),
        _ => Err(Error::no_such_overload()),
    }
}

fn end<'a>(list: &Value<'a>, get: fn(&List<'a>) -> Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
    match list {
        Value::List(list) if list.is_empty() => Ok(Value::Optional(None)),
        Value::List(list) => get(list).map(Value::some),
        _ => Err(Error::no_such_overload()),
    }
}

fn unwrap<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let Value::List(list) = &args[0] else { return Err(Error::no_such_overload()) };
    let mut present = Vec::new();
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => present.push((*value).clone()),
            Value::Optional(None) => {}
            other => return Err(Error::failed(format!("value {} is not optional", other.shown()))),
        }
    }
    Ok(Value::list(present))
}
