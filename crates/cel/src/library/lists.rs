//! The list and set functions.

use std::cmp::Ordering;

use super::{Bodies, MOST_ITEMS, int, operators};
use crate::{
    error::Error,
    value::{Duration, List, Value, compare, equal},
};

pub(super) const BODIES: Bodies = &[
    ("isSorted", is_sorted),
    ("sum", sum),
    ("min", |args| best(args, "min", Ordering::Greater)),
    ("max", |args| best(args, "max", Ordering::Less)),
    ("distinct", distinct),
    ("flatten", flatten),
    ("reverse", |args| {
        let list = list(&args[0])?;
        collect(list.len(), |at| list.get(list.len() - 1 - at))
    }),
    ("slice", slice),
    ("sort", |args| sorted(&args[0], &args[0])),
    ("@sortByAssociatedKeys", |args| sorted(&args[0], &args[1])),
    ("lists.range", |args| {
        let count = usize::try_from(int(&args[0])?).unwrap_or(0);
        collect(count, |at| Ok(Value::Int(at as i64)))
    }),
    ("sets.contains", |args| Ok(Value::Bool(has_all(list(&args[0])?, list(&args[1])?)))),
    ("sets.equivalent", |args| {
        let (a, b) = (list(&args[0])?, list(&args[1])?);
        Ok(Value::Bool(has_all(a, b) && has_all(b, a)))
    }),
    ("sets.intersects", |args| {
        let (a, b) = (list(&args[0])?, list(&args[1])?);
        Ok(Value::Bool(a.iter().any(|item| equal::contains(b, &item))))
    }),
];

fn list<'v, 'a>(value: &'v Value<'a>) -> Result<&'v List<'a>, Error> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(Error::no_such_overload()),
    }
}

/// Builds a list of `count` elements; fails if that exceeds the size limit.
fn collect<'a>(count: usize, item: impl Fn(usize) -> Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
    if count > MOST_ITEMS {
        return Err(Error::CostLimit);
    }
    (0..count).map(item).collect::<Result<_, _>>().map(Value::list)
}

fn has_all(a: &List<'_>, b: &List<'_>) -> bool {
    b.iter().all(|item| equal::contains(a, &item))
}

pub(super) fn position<'a>(list: &List<'a>, item: &Value<'a>, last: bool) -> Value<'a> {
    let mut found = list.iter().enumerate().filter(|(_, mine)| mine == item).map(|(at, _)| at as i64);
    let found = if last { found.last() } else { found.next() };
    Value::Int(found.unwrap_or(-1))
}

fn is_sorted<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let list = list(&args[0])?;
    let mut before: Option<Value<'a>> = None;
    for item in list.iter() {
        comparable(&item)?;
        if before.as_ref().is_some_and(|before| compare(before, &item) == Some(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn comparable(value: &Value<'_>) -> Result<(), Error> {
    if compare(value, value).is_some() || matches!(value, Value::Double(_)) {
        Ok(())
    } else {
        Err(Error::no_such_overload())
    }
}

fn sum<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let list = list(&args[0])?;
    let mut total = match list.iter().next() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(Duration(0)),
        Some(_) => return Err(Error::no_such_overload()),
    };
    for item in list.iter() {
        total = operators::BODIES[0].1(&mut [total, item]).map_err(|_| Error::no_such_overload())?;
    }
    Ok(total)
}

/// Returns the minimum or maximum element; `worse` is the ordering of a worse element relative to a better one.
fn best<'a>(args: &mut [Value<'a>], name: &str, worse: Ordering) -> Result<Value<'a>, Error> {
    let mut best: Option<Value<'a>> = None;
    for item in list(&args[0])?.iter() {
        comparable(&item)?;
        if best.as_ref().is_none_or(|best| compare(best, &item) == Some(worse)) {
            best = Some(item);
        }
    }
    best.ok_or_else(|| Error::failed(format!("{name} called on empty list")))
}

fn distinct<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let list = list(&args[0])?;
    // Each element is compared with all before it, which is quadratic; the length is checked first.
    if list.len() > 10_000 {
        return Err(Error::CostLimit);
    }
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}

fn flatten<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let depth = args.get(1).map_or(Ok(1), int)?;
    if depth < 0 {
        return Err(Error::failed("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list(&args[0])?, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(list: &List<'a>, depth: i64, flat: &mut Vec<Value<'a>>) -> Result<(), Error> {
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat)?,
            item => flat.push(item),
        }
        if flat.len() > MOST_ITEMS {
            return Err(Error::CostLimit);
        }
    }
    Ok(())
}

fn slice<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, Error> {
    let (list, start, end) = (list(&args[0])?, int(&args[1])?, int(&args[2])?);
    let problem = match () {
        () if start < 0 || end < 0 => "negative indexes not supported".into(),
        () if start > end => "start index must be less than or equal to end index".into(),
        () if (list.len() as i64) < end => format!("list is length {}", list.len()),
        () => return collect((end - start) as usize, |at| list.get(start as usize + at)),
    };
    Err(Error::failed(format!("cannot slice({start}, {end}), {problem}")))
}

fn sorted<'a>(values: &Value<'a>, keys: &Value<'a>) -> Result<Value<'a>, Error> {
    let (values, keys) = (list(values)?, list(keys)?);
    if values.len() != keys.len() {
        return Err(Error::failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            values.len(),
            keys.len()
        )));
    }
    let keys: Vec<_> = keys.iter().collect();
    let Some(first) = keys.first() else { return Ok(Value::List(values.clone())) };
    if compare(first, first).is_none() && !matches!(first, Value::Double(_)) {
        return Err(Error::failed("list elements must be comparable"));
    }
    let ty = first.type_of();
    if keys.len() > 1 && keys.iter().any(|key| key.type_of() != ty) {
        return Err(Error::failed("list elements must have the same type"));
    }
    let mut order: Vec<_> = (0..keys.len()).collect();
    order.sort_by(|a, b| compare(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    collect(order.len(), |at| values.get(order[at]))
}
