//! The regex library: `find` and `findAll`.

pub(crate) use formats::go_regexp::compile_regexp;
use regex::Regex;

use super::{FunctionBodies, int_arg, string_arg, strings};
use crate::{error::EvalError, value::Value};

pub(super) const BODIES: FunctionBodies = &[
    ("matches", |args| Ok(Value::Bool(compile_regexp(string_arg(&args[1])?)?.is_match(string_arg(&args[0])?)))),
    ("find", |args| find_match(&compile_pattern(string_arg(&args[1])?)?, args)),
    ("findAll", |args| find_all_matches(&compile_pattern(string_arg(&args[1])?)?, args)),
];

fn compile_pattern(pattern: &str) -> Result<Regex, EvalError> {
    compile_regexp(pattern).map_err(|error| EvalError::new(format!("Illegal regex: {error}")))
}

pub(crate) fn find_match<'a>(regex: &Regex, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let text = string_arg(&args[0])?;
    Ok(Value::from_owned_string(regex.find(text).map_or("", |found| found.as_str())))
}

pub(crate) fn find_all_matches<'a>(regex: &Regex, args: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    let text = string_arg(&args[0])?;
    let most = args.get(2).map_or(Ok(-1), int_arg)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(super::MAX_LIST_ITEMS);
    Ok(strings::string_list(regex.find_iter(text).take(most).map(|found| found.as_str())))
}
