//! The list and set functions.

use std::cmp::Ordering;

use super::{FunctionBodies, MAX_LIST_ITEMS, int_arg, operators};
use crate::{
    error::EvalError,
    value::{Duration, ListValue, Value, compare_values, equality},
};

pub(super) const BODIES: FunctionBodies = &[
    ("isSorted", list_is_sorted),
    ("sum", list_sum),
    ("min", |args| list_extremum(args, "min", Ordering::Greater)),
    ("max", |args| list_extremum(args, "max", Ordering::Less)),
    ("distinct", list_distinct),
    ("flatten", list_flatten),
    ("reverse", |args| {
        let list = list_arg(&args[0])?;
        build_list(list.len(), |at| list.get(list.len() - 1 - at))
    }),
    ("slice", list_slice),
    ("sort", |args| sort_by_keys(&args[0], &args[0])),
    ("@sortByAssociatedKeys", |args| sort_by_keys(&args[0], &args[1])),
    ("lists.range", |args| {
        let count = usize::try_from(int_arg(&args[0])?).unwrap_or(0);
        build_list(count, |at| Ok(Value::Int(at as i64)))
    }),
    ("sets.contains", |args| Ok(Value::Bool(contains_all(list_arg(&args[0])?, list_arg(&args[1])?)))),
    ("sets.equivalent", |args| {
        let (a, b) = (list_arg(&args[0])?, list_arg(&args[1])?);
        Ok(Value::Bool(contains_all(a, b) && contains_all(b, a)))
    }),
    ("sets.intersects", |args| {
        let (a, b) = (list_arg(&args[0])?, list_arg(&args[1])?);
        Ok(Value::Bool(a.iter().any(|item| equality::list_contains(b, &item))))
    }),
];

fn list_arg<'v, 'a>(value: &'v Value<'a>) -> Result<&'v ListValue<'a>, EvalError> {
    match value {
        Value::List(list) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Builds a list of `count` elements; fails if that exceeds the size limit.
fn build_list<'a>(count: usize, item: impl Fn(usize) -> Result<Value<'a>, EvalError>) -> Result<Value<'a>, EvalError> {
    if count > MAX_LIST_ITEMS {
        return Err(EvalError::CostLimit);
    }
    (0..count).map(item).collect::<Result<_, _>>().map(Value::from_list)
}

fn contains_all(a: &ListValue<'_>, b: &ListValue<'_>) -> bool {
    b.iter().all(|item| equality::list_contains(a, &item))
}

pub(super) fn find_position<'a>(list: &ListValue<'a>, item: &Value<'a>, last: bool) -> Value<'a> {
    let mut found = list.iter().enumerate().filter(|(_, mine)| mine == item).map(|(at, _)| at as i64);
    let found = if last { found.last() } else { found.next() };
    Value::Int(found.unwrap_or(-1))
}

fn list_is_sorted<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let list = list_arg(&args[0])?;
    let mut before: Option<Value<'a>> = None;
    for item in list.iter() {
        check_comparable(&item)?;
        if before.as_ref().is_some_and(|before| compare_values(before, &item) == Some(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        before = Some(item);
    }
    Ok(Value::Bool(true))
}

fn check_comparable(value: &Value<'_>) -> Result<(), EvalError> {
    if compare_values(value, value).is_some() || matches!(value, Value::Double(_)) {
        Ok(())
    } else {
        Err(EvalError::no_such_overload())
    }
}

fn list_sum<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let list = list_arg(&args[0])?;
    let mut total = match list.iter().next() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(Duration(0)),
        Some(_) => return Err(EvalError::no_such_overload()),
    };
    for item in list.iter() {
        total = operators::BODIES[0].1(&mut [total, item]).map_err(|_| EvalError::no_such_overload())?;
    }
    Ok(total)
}

/// Returns the minimum or maximum element; `worse` is the ordering of a worse element relative to a better one.
fn list_extremum<'a>(args: &mut [Value<'a>], name: &str, worse: Ordering) -> Result<Value<'a>, EvalError> {
    let mut best: Option<Value<'a>> = None;
    for item in list_arg(&args[0])?.iter() {
        check_comparable(&item)?;
        if best.as_ref().is_none_or(|best| compare_values(best, &item) == Some(worse)) {
            best = Some(item);
        }
    }
    best.ok_or_else(|| EvalError::new(format!("{name} called on empty list")))
}

fn list_distinct<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let list = list_arg(&args[0])?;
    // Each element is compared with all before it, which is quadratic; the length is checked first.
    if list.len() > 10_000 {
        return Err(EvalError::CostLimit);
    }
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        if !unique.contains(&item) {
            unique.push(item);
        }
    }
    Ok(Value::from_list(unique))
}

fn list_flatten<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let depth = args.get(1).map_or(Ok(1), int_arg)?;
    if depth < 0 {
        return Err(EvalError::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    flatten_into(list_arg(&args[0])?, depth, &mut flat)?;
    Ok(Value::from_list(flat))
}

fn flatten_into<'a>(list: &ListValue<'a>, depth: i64, flat: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        match item {
            Value::List(inner) if depth > 0 => flatten_into(&inner, depth - 1, flat)?,
            item => flat.push(item),
        }
        if flat.len() > MAX_LIST_ITEMS {
            return Err(EvalError::CostLimit);
        }
    }
    Ok(())
}

fn list_slice<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>, EvalError> {
    let (list, start, end) = (list_arg(&args[0])?, int_arg(&args[1])?, int_arg(&args[2])?);
    let problem = match () {
        () if start < 0 || end < 0 => "negative indexes not supported".into(),
        () if start > end => "start index must be less than or equal to end index".into(),
        () if (list.len() as i64) < end => format!("list is length {}", list.len()),
        () => return build_list((end - start) as usize, |at| list.get(start as usize + at)),
    };
    Err(EvalError::new(format!("cannot slice({start}, {end}), {problem}")))
}

fn sort_by_keys<'a>(values: &Value<'a>, keys: &Value<'a>) -> Result<Value<'a>, EvalError> {
    let (values, keys) = (list_arg(values)?, list_arg(keys)?);
    if values.len() != keys.len() {
        return Err(EvalError::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            values.len(),
            keys.len()
        )));
    }
    let keys: Vec<_> = keys.iter().collect();
    let Some(first) = keys.first() else { return Ok(Value::List(values.clone())) };
    if compare_values(first, first).is_none() && !matches!(first, Value::Double(_)) {
        return Err(EvalError::new("list elements must be comparable"));
    }
    let ty = first.type_of();
    if keys.len() > 1 && keys.iter().any(|key| key.type_of() != ty) {
        return Err(EvalError::new("list elements must have the same type"));
    }
    let mut order: Vec<_> = (0..keys.len()).collect();
    order.sort_by(|a, b| compare_values(&keys[*a], &keys[*b]).unwrap_or(Ordering::Equal));
    build_list(order.len(), |at| values.get(order[at]))
}
