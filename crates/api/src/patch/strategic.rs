//! Strategic merge patch: like a merge patch, but lists are merged by the keys that the tables name.
//!
//! Directives: `$patch: replace|delete|merge` in objects and list items, `$retainKeys`, `$deleteFromPrimitiveList/f`,
//! `$setElementOrder/f`.

use super::Error;
use crate::{
    Map, Value,
    schema::{Field, Ty, TypeId, schema},
};

const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

/// The object of type `ty` after the patch.
pub fn apply(ty: TypeId, object: &Value, patch: &Value) -> Result<Value, Error> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(malformed("a strategic merge patch must be an object"));
    };
    merge(Some(ty), object.clone(), patch).map(Value::Object)
}

fn merge(ty: Option<TypeId>, mut object: Map, patch: &Map) -> Result<Map, Error> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let mut replaced = patch.clone();
            replaced.remove("$patch");
            return Ok(replaced);
        }
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(malformed(&format!("unknown $patch directive {other:?}"))),
    }
    retain_keys(&mut object, patch)?;
    for (name, value) in patch {
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            delete_scalars(&mut object, field, value)?;
        }
    }
    for (name, value) in patch.iter().filter(|(name, _)| !name.starts_with('$')) {
        let field = ty.and_then(|ty| schema().get(ty).field(name));
        match merged(field, object.remove(name), value)? {
            Value::Null => {}
            value => {
                object.insert(name.clone(), value);
            }
        }
    }
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix(ORDER) {
            let key = ty.and_then(|ty| schema().get(ty).field(name)).and_then(|field| field.patch.merge_key);
            reorder(&mut object, name, key.unwrap_or_default(), value, patch.get(name))?;
        }
    }
    Ok(object)
}

fn retain_keys(object: &mut Map, patch: &Map) -> Result<(), Error> {
    let Some(keys) = patch.get("$retainKeys") else { return Ok(()) };
    let keys = keys.as_array().ok_or_else(|| malformed("$retainKeys must be a list"))?;
    let keep: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
    object.retain(|name, _| keep.contains(&name.as_str()));
    Ok(())
}

fn delete_scalars(object: &mut Map, field: &str, values: &Value) -> Result<(), Error> {
    let values = values.as_array().ok_or_else(|| malformed("$deleteFromPrimitiveList must be a list"))?;
    if let Some(Value::Array(items)) = object.get_mut(field) {
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

/// The value of one field after the patch; null removes it.
fn merged(field: Option<&Field>, current: Option<Value>, patch: &Value) -> Result<Value, Error> {
    let element = field.and_then(|field| field.ty.element_struct());
    match (current, patch) {
        (_, patch) if field.is_some_and(|field| field.patch.replace) => Ok(patch.clone()),
        (current, Value::Object(patch)) if is_object(field) => {
            let current = match current {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            let out = merge(element.filter(|_| matches!(field.map(|f| &f.ty), Some(Ty::Struct(_)))), current, patch)?;
            let gone = out.is_empty() && patch.get("$patch").and_then(Value::as_str) == Some("delete");
            Ok(if gone { Value::Null } else { Value::Object(out) })
        }
        (current, Value::Array(items)) => match field.and_then(|field| field.patch.merge_key) {
            None => Ok(Value::Array(plain(items))),
            Some(key) => merge_list(element, key, current, items).map(Value::Array),
        },
        (_, patch) => Ok(patch.clone()),
    }
}

fn is_object(field: Option<&Field>) -> bool {
    field.is_none_or(|field| matches!(field.ty, Ty::Struct(_) | Ty::Map(_) | Ty::Raw))
}

/// The items of a list that is replaced, without directives.
fn plain(items: &[Value]) -> Vec<Value> {
    items.iter().filter(|item| item.get("$patch").is_none()).cloned().collect()
}

fn merge_list(
    element: Option<TypeId>,
    key: &str,
    current: Option<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, Error> {
    let mut items = match current {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    if key.is_empty() {
        let new: Vec<Value> = patch.iter().filter(|item| !items.contains(item)).cloned().collect();
        items.extend(new);
        return Ok(items);
    }
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if patch.iter().any(|item| directive(item).as_deref() == Some("replace") && item.get(key).is_none()) {
        return Ok(plain(patch));
    }
    for item in patch {
        let Value::Object(map) = item else { return Err(malformed("items of a merged list must be objects")) };
        let Some(wanted) = map.get(key) else {
            return Err(malformed(&format!("map: {item} does not contain declared merge key: {key}")));
        };
        let at = items.iter().position(|item| item.get(key) == Some(wanted));
        match (at, directive(item).as_deref()) {
            (Some(at), Some("delete")) => {
                items.remove(at);
            }
            (None, Some("delete")) => {}
            (Some(at), _) => {
                let current = match items[at].take() {
                    Value::Object(map) => map,
                    _ => Map::new(),
                };
                items[at] = Value::Object(merge(element, current, map)?);
            }
            (None, _) => items.push(Value::Object(merge(element, Map::new(), map)?)),
        }
    }
    Ok(items)
}

/// Puts the items that the order names into that order; others keep their place after the one they followed.
fn reorder(object: &mut Map, field: &str, key: &str, order: &Value, patched: Option<&Value>) -> Result<(), Error> {
    let order = order.as_array().ok_or_else(|| malformed("$setElementOrder must be a list"))?;
    let Some(Value::Array(items)) = object.get_mut(field) else { return Ok(()) };
    let identity =
        |item: &Value| if key.is_empty() { item.clone() } else { item.get(key).cloned().unwrap_or_default() };
    let order: Vec<Value> = order.iter().map(identity).collect();
    let rank = |item: &Value| order.iter().position(|wanted| *wanted == identity(item));
    let (mut named, others): (Vec<_>, Vec<_>) = items.drain(..).enumerate().partition(|(_, item)| rank(item).is_some());
    named.sort_by_key(|(_, item)| rank(item));
    // Items that only the server has keep their position where that is possible.
    let patched_only = patched.is_some();
    let mut out: Vec<Value> = named.into_iter().map(|(_, item)| item).collect();
    for (at, item) in others {
        let at = if patched_only { at.min(out.len()) } else { out.len() };
        out.insert(at, item);
    }
    *items = out;
    Ok(())
}

fn malformed(message: &str) -> Error {
    Error::Malformed(format!("error decoding patch: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, patch: Value, want: Value) {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        assert_eq!(apply(ty, &object, &patch).unwrap(), want);
    }

    fn with(containers: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn lists_merge_by_key() {
        check(
            with(json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}])),
            with(json!([{"name": "a", "image": "2", "env": [{"name": "Y"}]}, {"name": "c"}])),
            with(
                json!([{"name": "a", "image": "2", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}, {"name": "b"}, {"name": "c"}]),
            ),
        );
    }

    #[test]
    fn directives_delete_replace_and_retain() {
        check(
            with(json!([{"name": "a"}, {"name": "b"}])),
            with(json!([{"name": "a", "$patch": "delete"}])),
            with(json!([{"name": "b"}])),
        );
        check(
            with(json!([{"name": "a"}])),
            with(json!([{"name": "z"}, {"$patch": "replace"}])),
            with(json!([{"name": "z"}])),
        );
        check(
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "labels": {"x": null}}}),
            json!({"metadata": {"finalizers": ["b", "c"], "labels": {}}}),
        );
    }

    #[test]
    fn order_is_set() {
        check(
            with(json!([{"name": "a"}, {"name": "b"}])),
            json!({"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}}}),
            with(json!([{"name": "b"}, {"name": "a"}])),
        );
    }

    #[test]
    fn a_list_item_without_its_key_is_refused() {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        assert!(apply(ty, &with(json!([])), &with(json!([{"image": "x"}]))).is_err());
        assert!(apply(ty, &json!({}), &json!([])).is_err());
    }
}
