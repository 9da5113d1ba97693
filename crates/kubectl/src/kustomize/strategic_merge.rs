//! Strategic merge as kustomize does it: new elements of lists come first, `null` removes, directives are honoured.

use api::{
    Map, Value,
    schema::{FieldType, StructField, TypeId, schema},
};

/// Merges a patch into an object; `false` if the patch deletes it.
pub fn merge_patch(ty: Option<TypeId>, target: &mut Value, patch: &Value) -> bool {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else { return true };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("delete") => false,
        Some("replace") => {
            let keep = ["apiVersion", "kind", "metadata"];
            target.retain(|field, _| keep.contains(&field.as_str()));
            merge_maps(ty, target, patch);
            true
        }
        _ => {
            merge_maps(ty, target, patch);
            true
        }
    }
}

fn struct_of(field: Option<&StructField>) -> Option<TypeId> {
    field.and_then(|field| match field.ty {
        FieldType::Struct(id) => Some(id),
        _ => None,
    })
}

fn merge_maps(ty: Option<TypeId>, target: &mut Map, patch: &Map) {
    for (name, value) in patch.iter().filter(|(name, _)| *name != "$patch") {
        let field = ty.and_then(|ty| schema().get(ty).field(name));
        match (target.get_mut(name), value) {
            (_, Value::Null) => drop(target.remove(name)),
            (Some(Value::Object(inner)), Value::Object(changes)) => match changes.get("$patch").and_then(Value::as_str)
            {
                Some("delete") => drop(target.remove(name)),
                Some("replace") => drop(target.insert(name.clone(), without_directives(value))),
                _ => merge_maps(struct_of(field), inner, changes),
            },
            (Some(Value::Array(items)), Value::Array(changes)) => merge_lists(field, items, changes),
            _ => drop(target.insert(name.clone(), without_directives(value))),
        }
    }
}

fn merge_lists(field: Option<&StructField>, items: &mut Vec<Value>, changes: &[Value]) {
    let directive = |value: &Value| value.get("$patch").and_then(Value::as_str).map(str::to_owned);
    let replaces = changes.iter().any(|change| directive(change).as_deref() == Some("replace"));
    let merge_key = field.and_then(|field| field.patch_strategy.merge_key);
    let Some(key) = merge_key.filter(|_| !replaces) else {
        let kept = changes.iter().filter(|change| directive(change).as_deref() != Some("replace"));
        *items = kept.map(without_directives).collect();
        return;
    };
    if !changes.iter().all(Value::is_object) {
        let mut merged = changes.to_vec();
        merged.extend(items.iter().filter(|item| !changes.contains(item)).cloned());
        *items = merged;
        return;
    }
    let ty = field.and_then(|field| field.ty.element_struct());
    let mut merged = Vec::new();
    for change in changes {
        let at = items.iter().position(|item| item.get(key) == change.get(key));
        if directive(change).as_deref() == Some("delete") {
            if let Some(at) = at {
                items.remove(at);
            }
            continue;
        }
        let mut element = at.map(|at| items.remove(at)).unwrap_or_else(|| Value::Object(Map::new()));
        if let (Value::Object(element), Value::Object(change)) = (&mut element, change) {
            merge_maps(ty, element, change);
        }
        merged.push(element);
    }
    merged.append(items);
    *items = merged;
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(name, value)| *name != "$patch" && !value.is_null());
            Value::Object(kept.map(|(name, value)| (name.clone(), without_directives(value))).collect())
        }
        Value::Array(items) => {
            let kept = items.iter().filter(|item| item.get("$patch").and_then(Value::as_str) != Some("delete"));
            Value::Array(kept.map(without_directives).collect())
        }
        other => other.clone(),
    }
}
