//! The semver library: semantic versions.

use super::{FunctionBodies, native_arg, string_arg};
use crate::{
    error::EvalError,
    value::{NativeValue, Semver, Value},
};

pub(super) const BODIES: FunctionBodies = &[
    ("semver", |args| Ok(NativeValue::Semver(parse_semver_arg(args)??).into_value())),
    ("isSemver", |args| Ok(Value::Bool(parse_semver_arg(args)?.is_ok()))),
    ("major", |args| Ok(Value::Int(semver_arg(&args[0])?.number(0)))),
    ("minor", |args| Ok(Value::Int(semver_arg(&args[0])?.number(1)))),
    ("patch", |args| Ok(Value::Int(semver_arg(&args[0])?.number(2)))),
];

pub(super) fn semver_arg<'v>(value: &'v Value<'_>) -> Result<&'v Semver, EvalError> {
    let NativeValue::Semver(version) = native_arg(value)? else { return Err(EvalError::no_such_overload()) };
    Ok(version)
}

/// Parses the first argument as a version; if the second argument is `true`, normalizes it first.
fn parse_semver_arg(args: &[Value<'_>]) -> Result<Result<Semver, EvalError>, EvalError> {
    let text = string_arg(&args[0])?;
    match args.get(1) {
        Some(Value::Bool(true)) => Ok(Semver::parse_normalized(text)),
        None | Some(Value::Bool(false)) => Ok(Semver::parse(text)),
        Some(_) => Err(EvalError::no_such_overload()),
    }
}
