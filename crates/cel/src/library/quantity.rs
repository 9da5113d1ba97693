//! The quantity library: resource quantities such as `1.5Gi`.

use std::cmp::Ordering;

use formats::quantity::Quantity;

use super::{Bodies, native::Native, semver, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("quantity", |args| Ok(Native::Quantity(Quantity::read(text(&args[0])?).map_err(Error::failed)?).value())),
    ("isQuantity", |args| Ok(Value::Bool(Quantity::read(text(&args[0])?).is_ok()))),
    ("sign", |args| Ok(Value::Int(of(&args[0])?.cmp(&Quantity::ZERO) as i64))),
    ("isInteger", |args| Ok(Value::Bool(of(&args[0])?.integer().is_some()))),
    ("asInteger", |args| {
        of(&args[0])?.integer().map(Value::Int).ok_or_else(|| Error::failed("cannot convert value to integer"))
    }),
    ("asApproximateFloat", |args| Ok(Value::Double(of(&args[0])?.float()))),
    ("add", |args| Ok(Native::Quantity(of(&args[0])?.plus(other(&args[1])?)).value())),
    ("sub", |args| Ok(Native::Quantity(of(&args[0])?.minus(other(&args[1])?)).value())),
    ("isGreaterThan", |args| compared(args, |order| Value::Bool(order == Ordering::Greater))),
    ("isLessThan", |args| compared(args, |order| Value::Bool(order == Ordering::Less))),
    ("compareTo", |args| compared(args, |order| Value::Int(order as i64))),
];

fn of(value: &Value<'_>) -> Result<Quantity, Error> {
    match value {
        Value::Native(native) => match &**native {
            Native::Quantity(quantity) => Ok(*quantity),
            _ => Err(Error::no_such_overload()),
        },
        _ => Err(Error::no_such_overload()),
    }
}

/// Returns the right operand of an addition or subtraction: a quantity or an integer.
fn other(value: &Value<'_>) -> Result<Quantity, Error> {
    match value {
        Value::Int(number) => Ok(Quantity::whole(*number)),
        other => of(other),
    }
}

/// Compares two quantities or two semantic versions.
fn compared<'a>(args: &[Value<'a>], result: fn(Ordering) -> Value<'a>) -> Result<Value<'a>, Error> {
    if let (Ok(a), Ok(b)) = (semver::of(&args[0]), semver::of(&args[1])) {
        return Ok(result(a.compare(b)));
    }
    Ok(result(of(&args[0])?.cmp(&of(&args[1])?)))
}
