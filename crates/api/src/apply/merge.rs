//! Applying a configuration to an object, and taking fields out of one.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    compare::{array, is_empty, object},
    element::Element,
    set::Set,
    view::{Form, NoKey, View},
};
use crate::{Map, Value};

/// The object with what the configuration says.
pub fn merge(view: View, live: &Value, config: &Value) -> Result<Value, NoKey> {
    Ok(merged(view, Some(live), Some(config))?.unwrap_or_default())
}

/// One value after the merge; at most one side is absent.
fn merged(view: View, live: Option<&Value>, config: Option<&Value>) -> Result<Option<Value>, NoKey> {
    let view = view.settled([live, config]);
    if view.atomic || (is_empty(live) && is_empty(config)) {
        return Ok(config.or(live).cloned());
    }
    match (view.form, live, config) {
        (_, Some(live), None) => Ok(Some(live.clone())),
        (Form::List(..) | Form::Items(_), live, config) => {
            Ok(Some(Value::Array(items(view, array(live), array(config))?)))
        }
        (_, live, config) => fields(view, object(live), object(config)).map(Some),
    }
}

fn fields(view: View, live: Option<&Map>, config: Option<&Map>) -> Result<Value, NoKey> {
    let mut out = live.cloned().unwrap_or_default();
    for (name, value) in config.into_iter().flatten() {
        let Some(child) = view.child(name) else { continue };
        let current = out.get(name);
        if let Some(value) = merged(child.view, current, Some(value))? {
            out.insert(name.clone(), value);
        }
    }
    Ok(Value::Object(out))
}

/// The items of both lists. Those in both take the order of the configuration; the others stay beside their neighbours.
fn items(view: View, live: &[Value], config: &[Value]) -> Result<Vec<Value>, NoKey> {
    let elements = |items: &[Value]| items.iter().map(|item| view.item_element(item)).collect::<Result<Vec<_>, _>>();
    let (left, right) = (elements(live)?, elements(config)?);
    let mut in_live: BTreeMap<&Element, Option<usize>> = BTreeMap::new();
    for (at, element) in left.iter().enumerate() {
        // An item that is there twice is not merged with anything.
        in_live.entry(element).and_modify(|place| *place = None).or_insert(Some(at));
    }
    let in_config: BTreeSet<&Element> = right.iter().collect();
    let mut shared = right.iter().filter(|element| in_live.contains_key(element)).peekable();
    let mut done: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() {
            let element = &left[l];
            let both = in_config.contains(element);
            if r < right.len() && both && *element != right[r] && shared.peek().is_some_and(|next| *next != element) {
                // In both lists, but not the one whose turn it is.
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
            out.extend(merged(view.item(), current, Some(&config[r]))?);
            shared.next_if(|next| *next == element);
            r += 1;
        }
    }
    Ok(out)
}

/// The value without the fields of a set.
pub fn without(view: View, value: &Value, fields: &Set) -> Value {
    let view = view.settled([Some(value), None]);
    match (view.form, value) {
        (Form::Scalar(_), value) => value.clone(),
        (Form::Any, value) if !value.is_object() && !value.is_array() => value.clone(),
        _ if view.atomic || is_empty(Some(value)) => Value::Null,
        (Form::List(..) | Form::Items(_), Value::Array(list)) => {
            let kept: Vec<Value> = list.iter().filter_map(|item| item_without(view, item, fields)).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (_, Value::Object(map)) => {
            let kept: Map = map
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), field_without(view, name, value, fields)?)))
                .collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        _ => Value::Null,
    }
}

fn item_without(view: View, item: &Value, fields: &Set) -> Option<Value> {
    let found = view.item_element(item).ok().and_then(|element| fields.get(&element));
    match found {
        None => Some(item.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(without(view.item(), item, &node.children)),
    }
}

fn field_without(view: View, name: &str, value: &Value, fields: &Set) -> Option<Value> {
    let Some(child) = view.child(name) else { return Some(value.clone()) };
    match fields.get(&child.element(name)) {
        None => Some(value.clone()),
        Some(node) if node.member => None,
        Some(node) => Some(without(child.view, value, &node.children)),
    }
}
