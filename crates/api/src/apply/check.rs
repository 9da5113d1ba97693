//! Whether an object has the form that apply needs: known fields, right types, list items that can be told apart.

use std::{collections::BTreeSet, fmt};

use super::{
    element::Element,
    view::{Form, NoKey, View},
};
use crate::{
    Map, Value,
    json::{go_type, go_value},
    schema::Ty,
};

/// What is wrong with an object, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(Vec<String>);

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "errors:\n  {}", many.join("\n  ")),
        }
    }
}

impl From<NoKey> for Mismatch {
    fn from(error: NoKey) -> Self {
        Mismatch(vec![error.to_string()])
    }
}

/// Checks an object; a list item may be there twice only where `duplicates` says so.
pub fn check(view: View, object: &Value, duplicates: bool) -> Result<(), Mismatch> {
    let mut walk = Walk { duplicates, path: Vec::new(), faults: Vec::new() };
    walk.value(view, object);
    if walk.faults.is_empty() { Ok(()) } else { Err(Mismatch(walk.faults)) }
}

struct Walk {
    duplicates: bool,
    path: Vec<Element>,
    faults: Vec<String>,
}

impl Walk {
    fn fault(&mut self, message: impl fmt::Display) {
        let path: String = self.path.iter().map(Element::to_string).collect();
        self.faults.push(if path.is_empty() { message.to_string() } else { format!("{path}: {message}") });
    }

    fn value(&mut self, view: View, value: &Value) {
        let view = view.settled([Some(value), None]);
        match (view.form, value) {
            (_, Value::Null) | (Form::Any, _) => {}
            (Form::Scalar(ty), value) => {
                if let Some(message) = scalar(ty, value) {
                    self.fault(message);
                }
            }
            (Form::Struct(_) | Form::Map(_) | Form::Fields(_) | Form::Deduced, Value::Object(map)) => {
                self.fields(view, map)
            }
            (Form::Struct(_) | Form::Map(_) | Form::Fields(_) | Form::Deduced, other) => {
                self.fault(format!("expected map, got &{{{}}}", go_value(other)))
            }
            (Form::List(..) | Form::Items(_), Value::Array(items)) => self.items(view, items),
            (Form::List(..) | Form::Items(_), other) => {
                self.fault(format!("expected list, got &{{{}}}", go_value(other)))
            }
        }
    }

    fn below(&mut self, element: Element, view: View, value: &Value) {
        self.path.push(element);
        self.value(view, value);
        self.path.pop();
    }

    fn fields(&mut self, view: View, map: &Map) {
        for (name, value) in map {
            match view.child(name) {
                Some(child) => self.below(child.element(name), child.view, value),
                None => {
                    self.path.push(Element::Field(name.clone().into()));
                    self.fault("field not declared in schema");
                    self.path.pop();
                    return;
                }
            }
        }
    }

    fn items(&mut self, view: View, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = if view.atomic { Ok(Element::Index(at as i64)) } else { view.item_element(item) };
            let element = match element {
                Ok(element) => element,
                Err(error) => return self.fault(format!("element {at}: {error}")),
            };
            if !view.atomic && !self.duplicates && !seen.insert(element.clone()) {
                self.fault(format!("duplicate entries for key {element}"));
            }
            self.below(element, view.item(), item);
        }
    }
}

/// What is wrong with a scalar.
fn scalar(ty: &Ty, value: &Value) -> Option<String> {
    match (ty, value) {
        (Ty::Int32 | Ty::Int64 | Ty::Double, Value::Number(_)) => None,
        (Ty::Int32 | Ty::Int64 | Ty::Double, other) => {
            Some(format!("expected numeric (int or float), got {}", go_type(other)))
        }
        (Ty::Bool, Value::Bool(_)) => None,
        (Ty::Bool, other) => Some(format!("expected boolean, got &{{{}}}", go_value(other))),
        (Ty::String | Ty::Bytes | Ty::Duration, Value::String(_)) => None,
        (Ty::String | Ty::Bytes | Ty::Duration, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_value(other)))
        }
        (_, Value::Array(_) | Value::Object(_)) => Some(format!("expected any scalar, got &{{{}}}", go_value(value))),
        _ => None,
    }
}
