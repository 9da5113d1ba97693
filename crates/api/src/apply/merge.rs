//! Merges applied configurations into objects, and removes field sets from objects.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    comparison::{as_items, as_map, is_empty_value},
    field_set::FieldSet,
    path_element::PathElement,
    type_view::{ListKeyError, TypeView, ViewForm},
};
use crate::{Map, Value};

/// Merges the configuration into the live object.
pub fn merge_config(view: TypeView, live: &Value, config: &Value) -> Result<Value, ListKeyError> {
    Ok(merge_values(view, Some(live), Some(config))?.unwrap_or_default())
}

/// Merges one value; at most one side is absent.
fn merge_values(view: TypeView, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, ListKeyError> {
    let view = view.deduced_for([live, config]);
    if view.atomic || (is_empty_value(live) && is_empty_value(config)) {
        return Ok(config.or(live).cloned());
    }
    match (view.form, live, config) {
        (_, Some(live), None) => Ok(Some(live.clone())),
        (ViewForm::List(..) | ViewForm::Items(_), live, config) => {
            Ok(Some(Value::Array(merge_items(view, as_items(live), as_items(config))?)))
        }
        (_, live, config) => merge_fields(view, as_map(live), as_map(config)).map(Some),
    }
}

fn merge_fields(view: TypeView, live: Option<&Map>, config: Option<&Map>) -> Result<Value, ListKeyError> {
    let mut out = live.cloned().unwrap_or_default();
    for (name, value) in config.into_iter().flatten() {
        let Some(child) = view.child_view(name) else { continue };
        let current = out.get(name);
        if let Some(value) = merge_values(child.view, current, Some(value))? {
            out.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(out))
}

/// Merges two lists. Items in both take the order of the configuration; others stay next to their neighbours.
fn merge_items(view: TypeView, live: &[Value], config: &[Value]) -> Result<Vec<Value>, ListKeyError> {
    let elements = |items: &[Value]| items.iter().map(|item| view.item_element(item)).collect::<Result<Vec<_>, _>>();
    let (left, right) = (elements(live)?, elements(config)?);
    let mut in_live: BTreeMap<&PathElement, Option<usize>> = BTreeMap::new();
    for (at, element) in left.iter().enumerate() {
        // Duplicate items are not merged.
        in_live.entry(element).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let in_config: BTreeSet<&PathElement> = right.iter().collect();
    let mut shared = right.iter().filter(|element| in_live.contains_key(element)).peekable();
    let mut done: BTreeSet<&PathElement> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() {
            let element = &left[l];
            let both = in_config.contains(element);
            if r < right.len() && both && *element != right[r] && shared.peek().is_some_and(|next| *next != element) {
                // In both lists, but not next in the configuration's order.
                l += 1;
                continue;
            }
            if !both {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if done.contains(element) || (r < right.len() && *element == right[r]) {
                l += 1;
            }
        }
        if r < right.len() {
            let element = &right[r];
            done.insert(element);
            let current = in_live.get(element).copied().flatten().map(|at| &live[at]);
            out.extend(merge_values(view.item_view(), current, Some(&config[r]))?);
            shared.next_if(|next| *next == element);
            r += 1;
        }
    }
    Ok(out)
}

/// Returns the value without the fields of a set.
pub fn remove_fields(view: TypeView, value: &Value, fields: &FieldSet) -> Value {
    let view = view.deduced_for([Some(value), None]);
    match (view.form, value) {
        (ViewForm::Scalar(_), value) => value.clone(),
        (ViewForm::Any, value) if !value.is_object() && !value.is_array() => value.clone(),
        _ if view.atomic || is_empty_value(Some(value)) => Value::Null,
        (ViewForm::List(..) | ViewForm::Items(_), Value::Array(list)) => {
            let kept: Vec<Value> = list.iter().filter_map(|item| remove_from_item(view, item, fields)).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (_, Value::Object(map)) => {
            let kept: Map = map
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), remove_from_field(view, name, value, fields)?)))
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        _ => Value::Null,
    }
}

fn remove_from_item(view: TypeView, item: &Value, fields: &FieldSet) -> Option<Value> {
    let found = view.item_element(item).ok().and_then(|element| fields.get(&element));
    match found {
        None => Some(item.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(remove_fields(view.item_view(), item, &node.children)),
    }
}

fn remove_from_field(view: TypeView, name: &str, value: &Value, fields: &FieldSet) -> Option<Value> {
    let Some(child) = view.child_view(name) else { return Some(value.clone()) };
    match fields.get(&child.element(name)) {
        None => Some(value.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(remove_fields(child.view, value, &node.children)),
    }
}
