//! The quantity library: resource quantities such as `1.5Gi`.

use std::cmp::Ordering;

use formats::quantity::Quantity;

use super::{FunctionBodies, native_arg, semver, string_arg};
use crate::{
    error::EvalError,
    value::{NativeValue, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("quantity", |args| Ok(NativeValue::Quantity(Quantity::try_parse(string_arg(&args[0])?)?).into_value())),
    ("isQuantity", |args| Ok(Value::Bool(Quantity::try_parse(string_arg(&args[0])?).is_ok()))),
    ("sign", |args| Ok(Value::Int(quantity_arg(&args[0])?.cmp(&Quantity::ZERO) as i64))),
    ("isInteger", |args| Ok(Value::Bool(quantity_arg(&args[0])?.as_int64().is_some()))),
    ("asInteger", |args| {
        quantity_arg(&args[0])?
            .as_int64()
            .map(Value::Int)
            .ok_or_else(|| EvalError::new("cannot convert value to integer"))
    }),
    ("asApproximateFloat", |args| Ok(Value::Double(quantity_arg(&args[0])?.as_approximate_float()))),
    ("add", |args| Ok(NativeValue::Quantity(quantity_arg(&args[0])?.plus(operand_quantity(&args[1])?)).into_value())),
    ("sub", |args| Ok(NativeValue::Quantity(quantity_arg(&args[0])?.minus(operand_quantity(&args[1])?)).into_value())),
    ("isGreaterThan", |args| compare_natives(args, |order| Value::Bool(order == Ordering::Greater))),
    ("isLessThan", |args| compare_natives(args, |order| Value::Bool(order == Ordering::Less))),
    ("compareTo", |args| compare_natives(args, |order| Value::Int(order as i64))),
];

fn quantity_arg(value: &Value<'_>) -> Result<Quantity, EvalError> {
    let NativeValue::Quantity(quantity) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(*quantity)
}

/// Returns the right operand of an addition or subtraction: a quantity or an integer.
fn operand_quantity(value: &Value<'_>) -> Result<Quantity, EvalError> {
    match value {
        Value::Int(number) => Ok(Quantity::from_integer(*number)),
        other => quantity_arg(other),
    }
}

/// Compares two quantities or two semantic versions.
fn compare_natives<'a>(args: &[Value<'a>], result: fn(Ordering) -> Value<'a>) -> Result<Value<'a>, EvalError> {
    if let (Ok(a), Ok(b)) = (semver::semver_arg(&args[0]), semver::semver_arg(&args[1])) {
        return Ok(result(a.compare_precedence(b)));
    }
    Ok(result(quantity_arg(&args[0])?.cmp(&quantity_arg(&args[1])?)))
}
