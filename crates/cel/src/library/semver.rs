//! The semver library: semantic versions.

use super::{FunctionBodies, string_argument};
use crate::{
    error::EvalError,
    value::{NativeValue, Semver, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("semver", |args| Ok(NativeValue::Semver(parse_semver_argument(args)??).into_value())),
    ("isSemver", |args| Ok(Value::Bool(parse_semver_argument(args)?.is_ok()))),
    ("major", |args| Ok(Value::Int(semver_argument(&args[0])?.number(0)))),
    ("minor", |args| Ok(Value::Int(semver_argument(&args[0])?.number(1)))),
    ("patch", |args| Ok(Value::Int(semver_argument(&args[0])?.number(2)))),
];

pub(super) fn semver_argument<'v>(value: &'v Value<'_>) -> Result<&'v Semver, EvalError> {
    match value {
        Value::Native(native) => match &**native {
            NativeValue::Semver(version) => Ok(version),
            _ => Err(EvalError::no_such_overload()),
        },
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Parses the first argument as a version; if the second argument is `true`, normalizes it first.
fn parse_semver_argument(args: &[Value<'_>]) -> Result<Result<Semver, EvalError>, EvalError> {
    let text = string_argument(&args[0])?;
    match args.get(1) {
        Some(Value::Bool(true)) => Ok(Semver::parse_normalized(text)),
        None | Some(Value::Bool(false)) => Ok(Semver::parse(text)),
        Some(_) => Err(EvalError::no_such_overload()),
    }
}
