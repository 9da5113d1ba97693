//! The quantity library: resource quantities such as `1.5Gi`.

use std::cmp::Ordering;

use formats::quantity::Quantity;

use super::{FunctionBodies, semver, string_argument};
use crate::{
    error::EvalError,
    value::{NativeValue, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("quantity", |args| Ok(NativeValue::Quantity(Quantity::try_parse(string_argument(&args[0])?)?).into_value())),
    ("isQuantity", |args| Ok(Value::Bool(Quantity::try_parse(string_argument(&args[0])?).is_ok()))),
    ("sign", |args| Ok(Value::Int(quantity_argument(&args[0])?.cmp(&Quantity::ZERO) as i64))),
    ("isInteger", |args| Ok(Value::Bool(quantity_argument(&args[0])?.as_int64().is_some()))),
    ("asInteger", |args| {
        quantity_argument(&args[0])?
            .as_int64()
            .map(Value::Int)
            .ok_or_else(|| EvalError::new("cannot convert value to integer"))
    }),
    ("asApproximateFloat", |args| Ok(Value::Double(quantity_argument(&args[0])?.as_approximate_float()))),
    ("add", |args| {
        Ok(NativeValue::Quantity(quantity_argument(&args[0])?.plus(operand_quantity(&args[1])?)).into_value())
    }),
    ("sub", |args| {
        Ok(NativeValue::Quantity(quantity_argument(&args[0])?.minus(operand_quantity(&args[1])?)).into_value())
    }),
    ("isGreaterThan", |args| compare_natives(args, |order| Value::Bool(order == Ordering::Greater))),
    ("isLessThan", |args| compare_natives(args, |order| Value::Bool(order == Ordering::Less))),
    ("compareTo", |args| compare_natives(args, |order| Value::Int(order as i64))),
];

fn quantity_argument(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Native(native) => match &**native {
            NativeValue::Quantity(quantity) => Ok(*quantity),
            _ => Err(EvalError::no_such_overload()),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Returns the right operand of an addition or subtraction: a quantity or an integer.
fn operand_quantity(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Int(number) => Ok(Quantity::from_integer(*number)),
        other => quantity_argument(other),
    }
}

/// Compares two quantities or two semantic versions.
fn compare_natives<'a>(args: &[Value<'a>], result: fn(Ordering) -> Value<'a>) -> Result<Value<'a>, EvalError> {
    if let (Ok(a), Ok(b)) = (semver::semver_argument(&args[0]), semver::semver_argument(&args[1])) {
        return Ok(result(a.compare_precedence(b)));
    }
    Ok(result(quantity_argument(&args[0])?.cmp(&quantity_argument(&args[1])?)))
}
