//! The field set of an object: the fields that an applied configuration owns.

use super::{
    field_set::{FieldNode, FieldSet},
    path_element::PathElement,
    type_view::{KeyOrigin, TypeView, ViewForm},
};
use crate::{Map, Value};

/// Returns the field set of an object.
pub fn to_field_set(view: TypeView, object: &Value) -> FieldSet {
    collect_value(view, object).1
}

/// Returns whether the value itself is owned, and the owned descendants.
fn collect_value(view: TypeView, value: &Value) -> (bool, FieldSet) {
    let view = view.deduced_for([Some(value), None]);
    if view.atomic {
        return (true, FieldSet::default());
    }
    match (view.form, value) {
        (ViewForm::Struct(_) | ViewForm::Map(_) | ViewForm::Fields(_) | ViewForm::Deduced, Value::Object(map)) => {
            (false, collect_entries(view, map))
        }
        (ViewForm::List(..) | ViewForm::Items(_), Value::Array(items)) => (false, collect_items(view, items)),
        _ => (false, FieldSet::default()),
    }
}

fn collect_entries(view: TypeView, map: &Map) -> FieldSet {
    let mut out = FieldSet::default();
    for (name, value) in map {
        let Some(child) = view.child_view(name) else { continue };
        let (own, children) = collect_value(child.view, value);
        let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
        let member = own || empty || child.key_origin == KeyOrigin::UserDefined;
        if member || !children.is_empty() {
            out.push(FieldNode { element: child.element(name), member, children });
        }
    }
    out
}

/// Duplicate items are owned as one, without descendants; items without keys are not owned.
fn collect_items(view: TypeView, items: &[Value]) -> FieldSet {
    let element = |item| Some((view.item_element(item).ok()?, item));
    let mut elements: Vec<(PathElement, &Value)> = items.iter().filter_map(element).collect();
    elements.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = FieldSet::default();
    for same in elements.chunk_by(|a, b| a.0 == b.0) {
        let children = match same {
            [(_, item)] => collect_value(view.item_view(), item).1,
            _ => FieldSet::default(),
        };
        out.push(FieldNode { element: same[0].0.clone(), member: true, children });
    }
    out
}

/// Adds every struct field that has members below it. Upstream: `EnsureNamedFieldsAreMembers`.
pub fn ensure_named_fields(view: Option<TypeView>, set: &FieldSet) -> FieldSet {
    let mut out = FieldSet::default();
    for node in set.nodes() {
        let (named, child) = match (&node.element, view) {
            (PathElement::Field(name), Some(view)) => {
                let child = view.child_view(name);
                (child.is_some_and(|child| child.key_origin != KeyOrigin::UserDefined), child.map(|child| child.view))
            }
            (PathElement::Key(_), Some(view)) => (false, Some(view.item_view())),
            _ => (false, None),
        };
        out.push(FieldNode {
            element: node.element.clone(),
            member: node.member || named,
            children: ensure_named_fields(child, &node.children),
        });
    }
    out
}

/// Adapts a set written under another schema: fields that are atomic now are owned as a whole. Upstream:
/// `ReconcileFieldSetWithSchema`.
pub fn reconcile_with_schema(view: TypeView, set: &mut FieldSet) {
    for node in set.nodes_mut() {
        let child = match &node.element {
            PathElement::Field(name) => view.child_view(name).map(|child| child.view),
            _ => Some(view.item_view()),
        };
        match child {
            Some(child) if child.atomic && !matches!(child.form, ViewForm::Any) && !node.children.is_empty() => {
                (node.member, node.children) = (true, FieldSet::default());
            }
            Some(child) if !child.atomic => reconcile_with_schema(child, &mut node.children),
            _ => {}
        }
    }
}
