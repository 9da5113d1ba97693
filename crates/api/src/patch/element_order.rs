//! List order after a strategic merge: items of the patch in its order, items of the server in the old order, each
//! before the item that it preceded.

use std::collections::{HashMap, HashSet};

use super::{PatchError, failed, missing_merge_key};
use crate::{
    Value,
    json::{go_type, go_value, value_type_name},
};

/// The identity of list items.
#[derive(Clone, Copy)]
pub enum ItemIdentity<'a> {
    /// The value of a field.
    Key(&'a str),
    /// The item itself.
    Item,
}

impl ItemIdentity<'_> {
    fn identify(self, item: &Value) -> Result<&Value, PatchError> {
        match self {
            ItemIdentity::Item => Ok(item),
            ItemIdentity::Key(key) => item.get(key).ok_or_else(|| missing_merge_key(item, key)),
        }
    }
}

/// Returns the common JSON type of all items; `None` for an empty list. Mixed types and lists are rejected.
pub fn element_kind<'a>(items: impl Iterator<Item = &'a Value>) -> Result<Option<&'static str>, PatchError> {
    let mut kind = None;
    for item in items {
        let this = match item {
            Value::Array(_) => return Err(PatchError::Unprocessable("lists of lists are not supported".to_owned())),
            Value::Number(number) if number.is_f64() => "float",
            other => value_type_name(other),
        };
        if *kind.get_or_insert(this) != this || this == "null" {
            return Err(failed("list element types are not identical".to_owned()));
        }
    }
    Ok(kind)
}

/// Removes duplicate items.
pub fn deduplicate_items(items: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

/// Checks that the items of a patch occur in the order of `$setElementOrder`.
pub fn check_order(patch: &[Value], order: &[Value], identity: ItemIdentity) -> Result<(), PatchError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let deletes = |item: &&Value| item.get("$patch").is_some_and(|directive| directive == "delete");
    let mut rest = patch.iter().filter(|item| !deletes(item)).peekable();
    for next in order {
        while rest.next_if(|item| item.get("$patch").is_some()).is_some() {}
        let Some(item) = rest.peek() else { break };
        if identity.identify(item)? == identity.identify(next)? {
            rest.next();
        }
    }
    if rest.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (go_value(&Value::from(patch)), go_value(&Value::from(order)));
    Err(failed(format!("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")))
}

/// Sorts items: those in `order` accordingly, the others as `before`.
pub fn enforce_order(
    items: Vec<Value>,
    order: &[Value],
    before: &[Value],
    identity: ItemIdentity,
) -> Result<Vec<Value>, PatchError> {
    let (order, before) = (first_positions(order, identity)?, first_positions(before, identity)?);
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in items {
        let wanted = identity.identify(&item)?;
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

/// Sorts items by their old position. Upstream's comparison treats an item without one as less in both directions, so
/// the result depends on its sort, an insertion sort for short lists.
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

/// The first position of each item.
fn first_positions<'a>(items: &'a [Value], identity: ItemIdentity) -> Result<HashMap<&'a Value, usize>, PatchError> {
    let mut places = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        places.entry(identity.identify(item)?).or_insert(at);
    }
    Ok(places)
}

/// The error of a value that is not a list.
pub fn not_a_list(found: &Value) -> PatchError {
    let found = if found.is_null() { "%!s(<nil>)" } else { go_type(found) };
    failed(format!("expected a []interface {{}}, but received a {found}"))
}
