//! Patches from the difference of objects: JSON merge patches and strategic merge patches, two-way and three-way.

use api::{
    Map, Value,
    schema::{FieldType, StructField, TypeId, schema},
};

const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

/// Which differences become part of a patch.
#[derive(Clone, Copy)]
struct DiffOptions {
    changes: bool,
    deletions: bool,
    element_order: bool,
}

/// The type of a built-in kind; `None` for others.
pub fn type_of_object(object: &Value) -> Option<TypeId> {
    let (group, version, kind) = crate::object::group_version_kind(object);
    schema().resource_of_kind(&group, &version, &kind).map(|resource| resource.ty)
}

/// The JSON merge patch from one value to another.
pub fn diff_merge(original: &Value, modified: &Value) -> Value {
    let (Value::Object(original), Value::Object(modified)) = (original, modified) else { return modified.clone() };
    let mut patch = Map::new();
    for (key, value) in modified {
        match original.get(key) {
            None => drop(patch.insert(key.clone(), value.clone())),
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                patch.insert(key.clone(), diff_merge(before, value));
            }
            Some(_) => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in original.keys().filter(|key| !modified.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Keeps only the nulls of a merge patch, or everything else.
fn keep_nulls(patch: &Value, keep: bool) -> Option<Value> {
    match patch {
        Value::Null => keep.then_some(Value::Null),
        Value::Object(map) => {
            let kept: Map =
                map.iter().filter_map(|(key, value)| Some((key.clone(), keep_nulls(value, keep)?))).collect();
            (!kept.is_empty() || !keep && map.is_empty()).then_some(Value::Object(kept))
        }
        other => (!keep).then(|| other.clone()),
    }
}

/// The three-way JSON merge patch: changes from the current object to the modified one, deletions from the original.
pub fn three_way_merge(original: &Value, modified: &Value, current: &Value) -> Value {
    let empty = || Value::Object(Map::new());
    let changes = keep_nulls(&diff_merge(current, modified), false).unwrap_or_else(empty);
    let deletions = keep_nulls(&diff_merge(original, modified), true).unwrap_or_else(empty);
    merge_values(deletions, changes)
}

/// Merges two patches; the second wins.
fn merge_values(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut first), Value::Object(second)) => {
            for (key, value) in second {
                let merged = match first.remove(&key) {
                    Some(before) => merge_values(before, value),
                    None => value,
                };
                first.insert(key, merged);
            }
            Value::Object(first)
        }
        (_, second) => second,
    }
}

/// The strategic merge patch from one object to another.
pub fn diff_strategic(ty: TypeId, original: &Value, modified: &Value) -> Value {
    let options = DiffOptions { changes: true, deletions: true, element_order: true };
    Value::Object(diff_maps(Some(ty), as_map(original), as_map(modified), options, false))
}

/// The three-way strategic merge patch.
pub fn three_way_strategic(ty: TypeId, original: &Value, modified: &Value, current: &Value) -> Value {
    let changes = DiffOptions { changes: true, deletions: false, element_order: true };
    let deletions = DiffOptions { changes: false, deletions: true, element_order: true };
    let delta = diff_maps(Some(ty), as_map(current), as_map(modified), changes, false);
    let removed = diff_maps(Some(ty), as_map(original), as_map(modified), deletions, false);
    Value::Object(merge_strategic(Some(ty), removed, delta))
}

/// The strategic merge patch of all changes from one object to another, without the order of lists.
pub fn diff_unordered(ty: TypeId, original: &Value, modified: &Value) -> Value {
    let options = DiffOptions { changes: true, deletions: true, element_order: false };
    Value::Object(diff_maps(Some(ty), as_map(original), as_map(modified), options, false))
}

fn as_map(value: &Value) -> &Map {
    static EMPTY: std::sync::LazyLock<Map> = std::sync::LazyLock::new(Map::new);
    value.as_object().unwrap_or(&EMPTY)
}

fn field_of(ty: Option<TypeId>, name: &str) -> Option<&'static StructField> {
    ty.and_then(|ty| schema().get(ty).field(name))
}

fn struct_of(field: Option<&StructField>) -> Option<TypeId> {
    field.and_then(|field| match field.ty {
        FieldType::Struct(id) => Some(id),
        _ => None,
    })
}

fn diff_maps(ty: Option<TypeId>, original: &Map, modified: &Map, options: DiffOptions, retain_keys: bool) -> Map {
    let mut patch = Map::new();
    for (key, value) in modified {
        let field = field_of(ty, key);
        match original.get(key) {
            None => {
                if options.changes {
                    patch.insert(key.clone(), value.clone());
                }
            }
            Some(before) => diff_field(field, key, before, value, options, &mut patch),
        }
    }
    if options.deletions {
        for key in original.keys().filter(|key| !modified.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    // What the other side has beyond these keys is cleared, also where nothing else changes.
    let has_more = original.keys().any(|key| !modified.contains_key(key));
    if retain_keys && !modified.is_empty() && (!patch.is_empty() || has_more) {
        let keys: Vec<Value> = modified.keys().map(|key| key.clone().into()).collect();
        patch.insert("$retainKeys".into(), keys.into());
    }
    patch
}

fn diff_field(
    field: Option<&StructField>,
    key: &str,
    before: &Value,
    after: &Value,
    options: DiffOptions,
    patch: &mut Map,
) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let strategy = field.map(|field| &field.patch_strategy);
            if strategy.is_some_and(|strategy| strategy.replace) {
                // It replaces the field even where it has not changed.
                if options.changes {
                    patch.insert(key.to_owned(), Value::Object(after.clone()));
                }
                return;
            }
            let retain = strategy.is_some_and(|strategy| strategy.retain_keys);
            let inner = diff_maps(struct_of(field), before, after, options, retain);
            if !inner.is_empty() {
                patch.insert(key.to_owned(), Value::Object(inner));
            }
        }
        (Value::Array(before), Value::Array(after)) => diff_lists(field, key, before, after, options, patch),
        (before, after) => {
            if options.changes && before != after {
                patch.insert(key.to_owned(), after.clone());
            }
        }
    }
}

fn diff_lists(
    field: Option<&StructField>,
    key: &str,
    before: &[Value],
    after: &[Value],
    options: DiffOptions,
    patch: &mut Map,
) {
    let Some(merge_key) = field.and_then(|field| field.patch_strategy.merge_key) else {
        if options.changes && before != after {
            patch.insert(key.to_owned(), after.to_vec().into());
        }
        return;
    };
    if before.is_empty() {
        if options.changes && !after.is_empty() {
            patch.insert(key.to_owned(), after.to_vec().into());
        }
        return;
    }
    if after.is_empty() && !before.is_empty() && before[0].is_object()
        || after.iter().chain(before).all(Value::is_object)
    {
        diff_objects(field, (key, merge_key), before, after, options, patch);
    } else {
        diff_scalars(key, before, after, options, patch);
    }
}

fn diff_objects(
    field: Option<&StructField>,
    (key, merge_key): (&str, &str),
    before: &[Value],
    after: &[Value],
    options: DiffOptions,
    patch: &mut Map,
) {
    let ty = field.and_then(|field| field.ty.element_struct());
    let retain = field.is_some_and(|field| field.patch_strategy.retain_keys);
    let find = |items: &'_ [Value], wanted: &Value| -> Option<usize> {
        items.iter().position(|item| item.get(merge_key) == Some(wanted))
    };
    let mut list = Vec::new();
    for item in after {
        let identity = item.get(merge_key).cloned().unwrap_or_default();
        match find(before, &identity) {
            Some(at) => {
                let mut inner = diff_maps(ty, as_map(&before[at]), as_map(item), options, retain);
                if !inner.is_empty() {
                    inner.insert(merge_key.to_owned(), identity);
                    list.push(Value::Object(inner));
                }
            }
            None if options.changes => list.push(item.clone()),
            None => {}
        }
    }
    if options.deletions {
        for item in before {
            let identity = item.get(merge_key).cloned().unwrap_or_default();
            if find(after, &identity).is_none() {
                list.push(serde_json::json!({merge_key: identity, "$patch": "delete"}));
            }
        }
    }
    let keys = |items: &[Value]| -> Vec<Value> {
        items.iter().map(|item| item.get(merge_key).cloned().unwrap_or_default()).collect()
    };
    let (old_keys, new_keys) = (keys(before), keys(after));
    let same_order = {
        let kept: Vec<&Value> = old_keys.iter().filter(|key| new_keys.contains(key)).collect();
        let present: Vec<&Value> = new_keys.iter().filter(|key| old_keys.contains(key)).collect();
        kept == present && old_keys.len() == new_keys.len()
    };
    let ordered = options.deletions && !list.is_empty() || options.changes && !same_order;
    if options.element_order && ordered {
        let order: Vec<Value> = new_keys.into_iter().map(|value| serde_json::json!({merge_key: value})).collect();
        if !order.is_empty() {
            patch.insert(format!("{SET_ELEMENT_ORDER}{key}"), order.into());
        }
    }
    if !list.is_empty() {
        patch.insert(key.to_owned(), list.into());
    }
}

fn diff_scalars(key: &str, before: &[Value], after: &[Value], options: DiffOptions, patch: &mut Map) {
    let added: Vec<Value> = after.iter().filter(|item| options.changes && !before.contains(item)).cloned().collect();
    let removed: Vec<Value> =
        before.iter().filter(|item| options.deletions && !after.contains(item)).cloned().collect();
    let ordered = options.deletions && !removed.is_empty() || options.changes && before != after;
    if options.element_order && ordered && !after.is_empty() {
        patch.insert(format!("{SET_ELEMENT_ORDER}{key}"), after.to_vec().into());
    }
    if !removed.is_empty() {
        patch.insert(format!("{DELETE_FROM_PRIMITIVE_LIST}{key}"), removed.into());
    }
    if !added.is_empty() {
        patch.insert(key.to_owned(), added.into());
    }
}

/// Merges two strategic patches of one type; the second wins.
fn merge_strategic(ty: Option<TypeId>, mut first: Map, second: Map) -> Map {
    for (key, value) in second {
        let field = field_of(ty, &key);
        let merged = match (first.remove(&key), value) {
            (Some(Value::Object(before)), Value::Object(after)) => {
                Value::Object(merge_strategic(struct_of(field), before, after))
            }
            (Some(Value::Array(before)), Value::Array(after)) => merge_patch_lists(field, before, after),
            (_, value) => value,
        };
        first.insert(key, merged);
    }
    first
}

fn merge_patch_lists(field: Option<&StructField>, before: Vec<Value>, after: Vec<Value>) -> Value {
    let Some(merge_key) = field.and_then(|field| field.patch_strategy.merge_key).filter(|key| !key.is_empty()) else {
        return after.into();
    };
    let ty = field.and_then(|field| field.ty.element_struct());
    let mut out = after;
    let mut deleted = Vec::new();
    for item in before {
        let identity = item.get(merge_key).cloned();
        match out.iter_mut().find(|known| known.get(merge_key).cloned() == identity) {
            Some(known) => {
                if let (Value::Object(first), Value::Object(second)) = (item, known.take()) {
                    *known = Value::Object(merge_strategic(ty, first, second));
                }
            }
            None => deleted.push(item),
        }
    }
    out.extend(deleted);
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn three_way_patches_delete_what_the_original_had() {
        let (original, modified, current) = (
            json!({"data": {"a": "1", "b": "2"}}),
            json!({"data": {"a": "x"}}),
            json!({"data": {"a": "1", "b": "2", "c": "3"}}),
        );
        assert_eq!(three_way_merge(&original, &modified, &current), json!({"data": {"a": "x", "b": null}}));
        let ty = schema().type_named("core/v1.ConfigMap").unwrap();
        assert_eq!(three_way_strategic(ty, &original, &modified, &current), json!({"data": {"a": "x", "b": null}}));
    }

    #[test]
    fn keys_of_unions_are_retained() {
        let ty = schema().type_named("core/v1.PodSpec").unwrap();
        let before = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]});
        let after = json!({"volumes": [{"name": "v", "hostPath": {"path": "/x"}}, {"name": "w", "emptyDir": {}}]});
        assert_eq!(
            diff_strategic(ty, &before, &after),
            json!({"$setElementOrder/volumes": [{"name": "v"}, {"name": "w"}],
                "volumes": [{"$retainKeys": ["hostPath", "name"], "name": "v", "emptyDir": null, "hostPath": {"path": "/x"}}]})
        );
    }

    #[test]
    fn lists_are_merged_by_their_keys() {
        let ty = schema().type_named("core/v1.PodSpec").unwrap();
        let original = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        let modified = json!({"containers": [{"name": "a", "image": "2"}]});
        let patch = three_way_strategic(ty, &original, &modified, &original);
        assert_eq!(
            patch,
            json!({"$setElementOrder/containers": [{"name": "a"}],
                "containers": [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}]})
        );
        assert_eq!(three_way_strategic(ty, &modified, &modified, &modified), json!({}));
    }
}
