//! The order of a list after a strategic merge: what the patch has in its order, what only the server has in the old order,
//! each of the latter before what it stood before.

use super::{
    Error, go,
    strategic::{failed, no_key},
};
use crate::{Value, json::kind_of_value};

/// What tells the items of a list apart.
#[derive(Clone, Copy)]
pub enum Identity<'a> {
    /// A field of theirs.
    Key(&'a str),
    /// Themselves.
    Item,
}

impl Identity<'_> {
    fn of(self, item: &Value) -> Result<&Value, Error> {
        match self {
            Identity::Item => Ok(item),
            Identity::Key(key) => item.get(key).ok_or_else(|| no_key(item, key)),
        }
    }
}

/// The kind of all items, which must be the same and no list; nothing if there are none.
pub fn element_kind<'a>(items: impl Iterator<Item = &'a Value>) -> Result<Option<&'static str>, Error> {
    let mut kind = None;
    for item in items {
        let this = match item {
            Value::Array(_) => return Err(Error::Unprocessable("lists of lists are not supported".to_owned())),
            Value::Number(number) if number.is_f64() => "float",
            other => kind_of_value(other),
        };
        if *kind.get_or_insert(this) != this || this == "null" {
            return Err(failed("list element types are not identical".to_owned()));
        }
    }
    Ok(kind)
}

/// The items, each once.
pub fn unique(items: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(items.len());
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

/// Whether the items of a patch are all in its order, and in that order.
pub fn check(patch: &[Value], order: &[Value], identity: Identity) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get("$patch").is_none()) {
        let wanted = identity.of(item)?;
        let found = rest.try_fold((), |(), next| match identity.of(next) {
            Ok(next) if next == wanted => Err(Ok(())),
            Ok(_) => Ok(()),
            Err(error) => Err(Err(error)),
        });
        match found {
            Err(found) => found?,
            Ok(()) => {
                let (patch, order) = (go(&Value::from(patch)), go(&Value::from(order)));
                return Err(failed(format!(
                    "The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n"
                )));
            }
        }
    }
    Ok(())
}

/// Puts items into order: those in `order` as it has them, the others as they were `before`.
pub fn enforce(items: Vec<Value>, order: &[Value], before: &[Value], identity: Identity) -> Result<Vec<Value>, Error> {
    let place = |list: &[Value], item: &Value| -> Result<Option<usize>, Error> {
        let wanted = identity.of(item)?;
        Ok(list.iter().position(|other| identity.of(other).is_ok_and(|other| other == wanted)))
    };
    for item in order.iter().chain(before) {
        identity.of(item)?;
    }
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let live = place(before, &item)?;
        match place(order, &item)? {
            Some(at) => named.push((at, live, item)),
            None => others.push((live, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(live, _)| *live);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, live, item) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| matches!((other, live), (Some(a), Some(b)) if *a < b))
        {
            out.push(other);
        }
        out.push(item);
    }
    out.extend(others.map(|(_, item)| item));
    Ok(out)
}

/// Something else stands where a list should.
pub fn no_list(found: &Value) -> Error {
    let found = match found {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    failed(format!("expected a []interface {{}}, but received a {found}"))
}
