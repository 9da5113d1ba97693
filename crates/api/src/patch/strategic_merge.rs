//! Strategic merge patch: a merge patch that merges lists by the merge keys of the schema.
//!
//! Directives: `$patch: replace|delete` in objects and list items, `$retainKeys`, `$deleteFromPrimitiveList/f`,
//! `$setElementOrder/f`. Contradictory patches behave as upstream.

use std::{
    collections::{HashMap, HashSet},
    mem::take,
};

use super::{
    PatchError,
    element_order::{self, ItemIdentity, element_kind},
    failed, missing_merge_key,
};
use crate::{
    Map, Value,
    json::go_value,
    schema::{FieldType, StructField, TypeId, schema},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies the patch to an object of type `ty`.
pub fn apply_strategic_merge_patch(ty: TypeId, object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(malformed("invalid JSON document"));
    };
    merge_maps(Some(ty), object.clone(), patch.clone()).map(Value::Object)
}

fn merge_maps(ty: Option<TypeId>, mut object: Map, mut patch: Map) -> Result<Map, PatchError> {
    match patch.remove(DIRECTIVE) {
        Some(Value::String(directive)) if directive == "replace" => return Ok(patch),
        Some(Value::String(directive)) if directive == "delete" => return Ok(Map::new()),
        Some(other) => return Err(unknown_directive(&other, &patch)),
        None => {}
    }
    if let Some(keys) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut object, &patch, &keys)?;
    }
    let orders: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for name in orders {
        let order = patch.remove(&name).unwrap_or_default();
        apply_element_order(
            field_of(ty, &name[SET_ELEMENT_ORDER.len()..]),
            &mut object,
            &mut patch,
            (&name[SET_ELEMENT_ORDER.len()..], order),
        )?;
    }
    for (name, value) in patch {
        match name.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            Some(name) => delete_scalars(&mut object, name, value)?,
            None => merge_field(field_of(ty, &name), &mut object, name, value)?,
        }
    }
    Ok(object)
}

fn field_of(ty: Option<TypeId>, name: &str) -> Option<&'static StructField> {
    ty.and_then(|ty| schema().get(ty).field(name))
}

/// Drops the keys that `$retainKeys` does not list; the patch may set listed keys only.
fn retain_keys(object: &mut Map, patch: &Map, keys: &Value) -> Result<(), PatchError> {
    let wrong = || malformed("invalid patch format of retainKeys");
    let keys = keys.as_array().ok_or_else(wrong)?;
    let listed = |name: &str| keys.iter().any(|key| key == name);
    let free = |name: &str, value: &Value| {
        value.is_null() || name.starts_with(DELETE_FROM_PRIMITIVE_LIST) || name.starts_with(SET_ELEMENT_ORDER)
    };
    if patch.iter().any(|(name, value)| !free(name, value) && !listed(name)) {
        return Err(wrong());
    }
    object.retain(|name, _| listed(name));
    Ok(())
}

fn delete_scalars(object: &mut Map, name: &str, values: Value) -> Result<(), PatchError> {
    if values.is_null() {
        object.remove(name);
        return Ok(());
    }
    let (Some(Value::Array(items)), Value::Array(values)) = (object.get_mut(name), &values) else { return Ok(()) };
    if (!items.is_empty() || !values.is_empty()) && element_kind(items.iter().chain(values))?.is_some() {
        let values: HashSet<&Value> = values.iter().collect();
        items.retain(|item| !values.contains(item));
    }
    Ok(())
}

fn merge_field(field: Option<&StructField>, object: &mut Map, name: String, patch: Value) -> Result<(), PatchError> {
    if patch.is_null() {
        object.remove(&name);
        return Ok(());
    }
    let merged = match (object.remove(&name), patch) {
        (Some(Value::Object(_)), patch @ Value::Object(_))
            if field.is_some_and(|field| field.patch_strategy.replace) =>
        {
            Some(patch)
        }
        (Some(Value::Object(current)), Value::Object(patch)) => {
            let ty = field.and_then(|field| if let FieldType::Struct(id) = field.ty { Some(id) } else { None });
            Some(Value::Object(merge_maps(ty, current, patch)?))
        }
        (Some(Value::Array(current)), Value::Array(patch)) => {
            Some(Value::Array(merge_lists(field, current, patch)?.items))
        }
        (_, patch) => strip_directives(without_nulls(patch)),
    };
    if let Some(merged) = merged {
        object.insert(name, merged);
    }
    Ok(())
}

/// Drops null fields of a value without counterpart.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without_nulls(item.take())),
        _ => {}
    }
    value
}

/// Strips directives from a value; `None` if it is a directive itself.
fn strip_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let entries = map.into_iter().filter_map(|(name, value)| Some((name, strip_directives(value)?)));
            Some(Value::Object(entries.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(strip_directives).collect())),
        other => Some(other),
    }
}

/// A merged list.
struct MergedList {
    items: Vec<Value>,
    /// The old list as upstream leaves it: new items take the positions of deleted ones, which decides their order.
    before: Vec<Value>,
}

fn merge_lists(
    field: Option<&StructField>,
    current: Vec<Value>,
    mut patch: Vec<Value>,
) -> Result<MergedList, PatchError> {
    let Some(key) = field.and_then(|field| field.patch_strategy.merge_key) else {
        return Ok(MergedList { items: patch, before: current });
    };
    let ty = field.and_then(|field| field.ty.element_struct());
    let mut items = current.clone();
    match element_kind(items.iter().chain(&patch))? {
        None => Ok(MergedList { items, before: current }),
        Some("object") if key.is_empty() => {
            let name = ty.map(|ty| schema().get(ty).short_name()).unwrap_or_default();
            Err(failed(format!("cannot merge lists without merge key for {name}")))
        }
        Some("object") => {
            let replaced = apply_item_directives(key, &mut items, &mut patch)?;
            let kept = items.clone();
            merge_items(ty, key, &mut items, &patch)?;
            let before = if replaced { current } else { items.iter().take(current.len()).cloned().collect() };
            Ok(MergedList {
                items: element_order::enforce_order(items, &patch, &kept, ItemIdentity::Key(key))?,
                before,
            })
        }
        Some(_) => {
            items.extend(patch.iter().cloned());
            let items = element_order::enforce_order(
                element_order::deduplicate_items(items),
                &patch,
                &current,
                ItemIdentity::Item,
            )?;
            Ok(MergedList { items, before: current })
        }
    }
}

/// Applies items with a directive and removes them from the patch; returns whether the list is replaced.
fn apply_item_directives(key: &str, items: &mut Vec<Value>, patch: &mut Vec<Value>) -> Result<bool, PatchError> {
    let mut replace = false;
    let mut deleted = HashSet::new();
    let mut rest = Vec::new();
    for item in take(patch) {
        match item.get(DIRECTIVE) {
            None => rest.push(item),
            Some(Value::String(directive)) if directive == "delete" => {
                deleted.insert(item.get(key).ok_or_else(|| missing_merge_key(&item, key))?.clone());
            }
            Some(Value::String(directive)) if directive == "replace" => replace = true,
            Some(Value::String(directive)) if directive == "merge" => {
                return Err(failed("merging lists cannot yet be specified in the patch".to_owned()));
            }
            Some(other) => {
                let (other, mut map) = (other.clone(), item.as_object().cloned().unwrap_or_default());
                map.remove(DIRECTIVE);
                return Err(unknown_directive(&other, &map));
            }
        }
    }
    items.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(value)));
    *if replace { items } else { patch } = rest;
    Ok(replace)
}

fn merge_items(ty: Option<TypeId>, key: &str, items: &mut Vec<Value>, patch: &[Value]) -> Result<(), PatchError> {
    let mut places: HashMap<Value, usize> = HashMap::new();
    for (at, item) in items.iter().enumerate() {
        if let Some(value) = item.get(key) {
            places.entry(value.clone()).or_insert(at);
        }
    }
    for item in patch {
        let wanted = item.get(key).ok_or_else(|| missing_merge_key(item, key))?;
        match (places.get(wanted), item) {
            (Some(at), Value::Object(patch)) => {
                let current = items[*at].as_object_mut().map(take).unwrap_or_default();
                items[*at] = Value::Object(merge_maps(ty, current, patch.clone())?);
            }
            (_, item) => {
                places.insert(wanted.clone(), items.len());
                items.push(item.clone());
            }
        }
    }
    Ok(())
}

/// Merges the list of a `$setElementOrder` and sorts it accordingly.
fn apply_element_order(
    field: Option<&StructField>,
    object: &mut Map,
    patch: &mut Map,
    (name, order): (&str, Value),
) -> Result<(), PatchError> {
    let list = |value: Value| match value {
        Value::Array(items) => Ok(items),
        other => Err(element_order::not_a_list(&other)),
    };
    let order = list(order)?;
    let live = object.get(name).cloned().map(list).transpose()?;
    let wanted = patch.get(name).cloned().map(list).transpose()?;
    let key = field.and_then(|field| field.patch_strategy.merge_key).unwrap_or_default();
    let identity = if key.is_empty() { ItemIdentity::Item } else { ItemIdentity::Key(key) };
    element_order::check_order(wanted.as_deref().unwrap_or_default(), &order, identity)?;
    let kind = element_kind(live.iter().flatten().chain(wanted.iter().flatten()));
    let MergedList { items, before } = match (live, wanted) {
        (None, None) => return Ok(()),
        (Some(live), None) => MergedList { items: live.clone(), before: live },
        (None, Some(wanted)) => {
            MergedList { items: wanted.into_iter().filter_map(strip_directives).collect(), before: Vec::new() }
        }
        (Some(live), Some(wanted)) => merge_lists(field, live, wanted)?,
    };
    if kind?.is_none() {
        return Err(failed("no elements in any of the given slices".to_owned()));
    }
    object.insert(name.to_owned(), Value::Array(element_order::enforce_order(items, &order, &before, identity)?));
    patch.remove(name);
    Ok(())
}

fn unknown_directive(directive: &Value, patch: &Map) -> PatchError {
    let mut map = patch.clone();
    map.insert(DIRECTIVE.to_owned(), directive.clone());
    failed(format!("unknown patch type: {} in map: {}", go_value(directive), go_value(&Value::Object(map))))
}

fn malformed(message: &str) -> PatchError {
    PatchError::Malformed(message.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, patch: Value, want: Value) {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        assert_eq!(apply_strategic_merge_patch(ty, &object, &patch).unwrap(), want);
    }

    fn with_containers(containers: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn lists_merge_by_key() {
        check(
            with_containers(json!([{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}])),
            with_containers(json!([{"name": "a", "image": "2", "env": [{"name": "Y"}]}, {"name": "c"}])),
            with_containers(
                json!([{"name": "a", "image": "2", "env": [{"name": "Y"}, {"name": "X", "value": "1"}]}, {"name": "c"}, {"name": "b"}]),
            ),
        );
    }

    #[test]
    fn directives_delete_replace_and_retain() {
        check(
            with_containers(json!([{"name": "a"}, {"name": "b"}])),
            with_containers(json!([{"name": "a", "$patch": "delete"}])),
            with_containers(json!([{"name": "b"}])),
        );
        check(
            with_containers(json!([{"name": "a"}])),
            with_containers(json!([{"name": "z"}, {"$patch": "replace"}])),
            with_containers(json!([{"name": "z"}])),
        );
        check(
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"type": "Recreate", "$retainKeys": ["type"]}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"], "labels": {"x": null}}}),
            json!({"metadata": {"finalizers": ["c", "b"], "labels": {}}}),
        );
    }

    #[test]
    fn element_order_is_enforced() {
        check(
            with_containers(json!([{"name": "a"}, {"name": "b"}])),
            json!({"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}}}),
            with_containers(json!([{"name": "b"}, {"name": "a"}])),
        );
    }

    #[test]
    fn list_item_without_merge_key_is_rejected() {
        let ty = schema().type_named("apps/v1.Deployment").unwrap();
        assert!(
            apply_strategic_merge_patch(ty, &with_containers(json!([])), &with_containers(json!([{"image": "x"}])))
                .is_err()
        );
        assert!(apply_strategic_merge_patch(ty, &json!({}), &json!([])).is_err());
    }
}
