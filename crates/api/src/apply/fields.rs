//! The fields that an object has, as a set: what an applied configuration owns.

use super::{
    element::Element,
    set::{Node, Set},
    view::{Form, NoKey, View},
};
use crate::{Map, Value};

/// The fields of an object.
pub fn of_object(view: View, object: &Value) -> Result<Set, NoKey> {
    Ok(walk(view, object)?.1)
}

/// Whether the value is owned itself, and what is owned below it.
fn walk(view: View, value: &Value) -> Result<(bool, Set), NoKey> {
    if view.atomic {
        return Ok((true, Set::default()));
    }
    match (view.form, value) {
        (Form::Struct(_) | Form::Map(_), Value::Object(map)) => Ok((false, entries(view, map)?)),
        (Form::List(..), Value::Array(items)) => Ok((false, list(view, items)?)),
        _ => Ok((false, Set::default())),
    }
}

fn entries(view: View, map: &Map) -> Result<Set, NoKey> {
    let mut out = Set::default();
    for (name, value) in map {
        let Some(child) = view.child(name) else { continue };
        let (own, children) = walk(child, value)?;
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let member = own || empty || !view.names(name);
        out.push(Node { element: view.field_element(name), member, children });
    }
    Ok(out)
}

/// Items that are there twice are owned as one, without what is below them.
fn list(view: View, items: &[Value]) -> Result<Set, NoKey> {
    let mut elements: Vec<(Element, &Value)> =
        items.iter().map(|item| Ok((view.item_element(item)?, item))).collect::<Result<_, NoKey>>()?;
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = Set::default();
    for same in elements.chunk_by(|a, b| a.0 == b.0) {
        let children = match same {
            [(_, item)] => walk(view.item(), item)?.1,
            _ => Set::default(),
        };
        out.push(Node { element: same[0].0.clone(), member: true, children });
    }
    Ok(out)
}

/// The set, and every field of a struct that has something in the set below it.
pub fn with_named(view: Option<View>, set: &Set) -> Set {
    let mut out = Set::default();
    for node in set.nodes() {
        let (named, child) = match (&node.element, view) {
            (Element::Field(name), Some(view)) => (view.names(name), view.child(name)),
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

/// A set that was written when the schema was another one: what is atomic now is owned as a whole. `None`: no change.
pub fn reconciled(view: View, set: &Set) -> Option<Set> {
    let mut changed = false;
    let mut nodes = Vec::with_capacity(set.nodes().len());
    for node in set.nodes() {
        let child = match &node.element {
            Element::Field(name) => view.child(name),
            _ => Some(view.item()),
        };
        let mut node = node.clone();
        match child {
            Some(child) if child.atomic && !matches!(child.form, Form::Any) && !node.children.is_empty() => {
                (node.member, node.children, changed) = (true, Set::default(), true);
            }
            Some(child) if !child.atomic => {
                if let Some(children) = reconciled(child, &node.children) {
                    (node.children, changed) = (children, true);
                }
            }
            _ => {}
        }
        nodes.push(node);
    }
    changed.then(|| Set::from_nodes(nodes))
}
