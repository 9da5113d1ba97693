//! The regex library: `find` and `findAll`.

pub(crate) use formats::pattern::compile;
use regex::Regex;

use super::{Bodies, int, strings, text};
use crate::{error::Error, value::Value};

pub(super) const BODIES: Bodies = &[
    ("matches", |args| Ok(Value::Bool(compile(text(&args[1])?).map_err(Error::failed)?.is_match(text(&args[0])?)))),
    ("find", |args| find(&illegal(text(&args[1])?)?, args)),
    ("findAll", |args| find_all(&illegal(text(&args[1])?)?, args)),
];

fn illegal(pattern: &str) -> Result<Regex, Error> {
    compile(pattern).map_err(|error| Error::failed(format!("Illegal regex: {error}")))
}

pub(crate) fn find<'a>(regex: &Regex, args: &[Value<'a>]) -> Result<Value<'a>, Error> {
    let text = text(&args[0])?;
    Ok(Value::owned_text(regex.find(text).map_or("", |found| found.as_str())))
}

pub(crate) fn find_all<'a>(regex: &Regex, args: &[Value<'a>]) -> Result<Value<'a>, Error> {
    let text = text(&args[0])?;
    let most = args.get(2).map_or(Ok(-1), int)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(super::MOST_ITEMS);
    Ok(strings::texts(regex.find_iter(text).take(most).map(|found| found.as_str())))
}
