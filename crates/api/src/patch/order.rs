//! The order of a list after a strategic merge: what the patch has in its order, what only the server has in the old order,
//! each of the latter before what it stood before.

use std::collections::{HashMap, HashSet};

use super::{
    Error,
    strategic::{failed, no_key},
};
use crate::{
    Value,
    json::{go_type, go_value, kind_of_value},
};

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
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Whether the items of a patch are all in its order, and in that order.
pub fn check(patch: &[Value], order: &[Value], identity: Identity) -> Result<(), Error> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deletes = |item: &&Value| item.get("$patch").is_some_and(|directive| directive == "delete");
    let mut rest = patch.iter().filter(|item| !deletes(item)).peekable();
    for next in order {
        while rest.next_if(|item| item.get("$patch").is_some()).is_some() {}
        let Some(item) = rest.peek() else { break };
        if identity.of(item)? == identity.of(next)? {
            rest.next();
        }
    }
    if rest.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (go_value(&Value::from(patch)), go_value(&Value::from(order)));
    Err(failed(format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")))
}

/// Puts items into order: those in `order` as it has them, the others as they were `before`.
pub fn enforce(items: Vec<Value>, order: &[Value], before: &[Value], identity: Identity) -> Result<Vec<Value>, Error> {
    let (order, before) = (places(order, identity)?, places(before, identity)?);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let wanted = identity.of(&item)?;
        let live = before.get(wanted).copied();
        match order.get(wanted) {
            Some(at) => named.push((*at, live, item)),
            None => others.push((live, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    sort_as_upstream(&mut others);
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

/// Sorts items by their old places. Upstream takes an item without one for less than any other, whichever way it asks: with
/// that the outcome depends on how it sorts, which is by insertion where there are few.
fn sort_as_upstream(items: &mut [(Option<usize>, Value)]) {
    const FEW: usize = 20;
    if items.len() > FEW {
        return items.sort_by_key(|(live, _)| *live);
    }
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            match (items[at].0, items[at - 1].0) {
                (Some(here), Some(before)) if here >= before => break,
                _ => items.swap(at, at - 1),
            }
        }
    }
}

/// Where each item is first.
fn places<'a>(items: &'a [Value], identity: Identity) -> Result<HashMap<&'a Value, usize>, Error> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        places.entry(identity.of(item)?).or_insert(at);
    }
    Ok(places)
}

/// Something else stands where a list should.
pub fn no_list(found: &Value) -> Error {
    let found = if found.is_null() { "%!s(<nil>)" } else { go_type(found) };
    failed(format!("expected a []interface {{}}, but received a {found}"))
}
