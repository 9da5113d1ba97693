//! The fields that an object has, as a set: what an applied configuration owns.

use super::{
    element::Element,
    set::{Node, Set},
    view::{Form, Named, View},
};
use crate::{Map, Value};

/// The fields of an object.
pub fn of_object(view: View, object: &Value) -> Set {
    walk(view, object).1
}

/// Whether the value is owned itself, and what is owned below it.
fn walk(view: View, value: &Value) -> (bool, Set) {
    let view = view.settled([Some(value), None]);
    if view.atomic {
        return (true, Set::default());
    }
    match (view.form, value) {
        (Form::Struct(_) | Form::Map(_) | Form::Fields(_) | Form::Deduced, Value::Object(map)) => {
            (false, entries(view, map))
        }
        (Form::List(..) | Form::Items(_), Value::Array(items)) => (false, list(view, items)),
        _ => (false, Set::default()),
    }
}

fn entries(view: View, map: &Map) -> Set {
    let mut out = Set::default();
    for (name, value) in map {
        let Some(child) = view.child(name) else { continue };
        let (own, children) = walk(child.view, value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let member = own || empty || child.named == Named::Freely;
        if member || !children.is_empty() {
            out.push(Node { element: child.element(name), member, children });
        }
    }
    out
}

/// Items that are there twice are owned as one, without what is below them; what cannot be told apart, not at all.
fn list(view: View, items: &[Value]) -> Set {
    let element = |item| Some((view.item_element(item).ok()?, item));
    let mut elements: Vec<(Element, &Value)> = items.iter().filter_map(element).collect();
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = Set::default();
    for same in elements.chunk_by(|a, b| a.0 == b.0) {
        let children = match same {
            [(_, item)] => walk(view.item(), item).1,
            _ => Set::default(),
        };
        out.push(Node { element: same[0].0.clone(), member: true, children });
    }
    out
}

/// The set, and every field of a struct that has something in the set below it.
pub fn with_named(view: Option<View>, set: &Set) -> Set {
    let mut out = Set::default();
    for node in set.nodes() {
        let (named, child) = match (&node.element, view) {
            (Element::Field(name), Some(view)) => {
                let child = view.child(name);
                (child.is_some_and(|child| child.named != Named::Freely), child.map(|child| child.view))
            }
            (Element::Key(_), Some(view)) => (false, Some(view.item())),
            _ => (false, None),
        };
        out.push(Node {
            element: node.element.clone(),
            member: node.member || named,
            children: with_named(child, &node.children),
        });
    }
    out
}

/// Brings a set that was written under another schema in line: what is atomic now is owned as a whole.
pub fn reconcile(view: View, set: &mut Set) {
    for node in set.nodes_mut() {
        let child = match &node.element {
            Element::Field(name) => view.child(name).map(|child| child.view),
            _ => Some(view.item()),
        };
        match child {
            Some(child) if child.atomic && !matches!(child.form, Form::Any) && !node.children.is_empty() => {
                (node.member, node.children) = (true, Set::default());
            }
            Some(child) if !child.atomic => reconcile(child, &mut node.children),
            _ => {}
        }
    }
}
