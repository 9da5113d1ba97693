//! Schema validation for server-side apply: declared fields, matching types, unique list keys.

use std::{collections::BTreeSet, fmt};

use super::{
    path_element::PathElement,
    type_view::{ListKeyError, TypeView, ViewForm},
};
use crate::{
    Map, Value,
    json::{go_type, go_value},
    schema::FieldType,
};

/// The mismatches between an object and its schema, with paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaMismatch(Vec<String>);

impl std::error::Error for SchemaMismatch {}

impl fmt::Display for SchemaMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => write!(f, "errors:\n  {}", many.join("\n  ")),
        }
    }
}

impl From<ListKeyError> for SchemaMismatch {
    fn from(error: ListKeyError) -> Self {
        SchemaMismatch(vec![error.to_string()])
    }
}

/// Checks an object; duplicate list items are allowed only with `duplicates`.
pub fn check_object(view: TypeView, object: &Value, duplicates: bool) -> Result<(), SchemaMismatch> {
    let mut walk = SchemaChecker { duplicates, path: Vec::new(), errors: Vec::new() };
    walk.check_value(view, object);
    if walk.errors.is_empty() { Ok(()) } else { Err(SchemaMismatch(walk.errors)) }
}

struct SchemaChecker {
    duplicates: bool,
    path: Vec<PathElement>,
    errors: Vec<String>,
}

impl SchemaChecker {
    fn push_error(&mut self, message: impl fmt::Display) {
        let path: String = self.path.iter().map(PathElement::to_string).collect();
        self.errors.push(if path.is_empty() { message.to_string() } else { format!("{path}: {message}") });
    }

    fn check_value(&mut self, view: TypeView, value: &Value) {
        let view = view.deduced_for([Some(value), None]);
        match (view.form, value) {
            (_, Value::Null) | (ViewForm::Any, _) => {}
            (ViewForm::Scalar(ty), value) => {
                if let Some(message) = scalar_error(ty, value) {
                    self.push_error(message);
                }
            }
            (ViewForm::Struct(_) | ViewForm::Map(_) | ViewForm::Fields(_) | ViewForm::Deduced, Value::Object(map)) => {
                self.check_fields(view, map)
            }
            (ViewForm::Struct(_) | ViewForm::Map(_) | ViewForm::Fields(_) | ViewForm::Deduced, other) => {
                self.push_error(format!("expected map, got &{{{}}}", go_value(other)))
            }
            (ViewForm::List(..) | ViewForm::Items(_), Value::Array(items)) => self.check_items(view, items),
            (ViewForm::List(..) | ViewForm::Items(_), other) => {
                self.push_error(format!("expected list, got &{{{}}}", go_value(other)))
            }
        }
    }

    fn check_child(&mut self, element: PathElement, view: TypeView, value: &Value) {
        self.path.push(element);
        self.check_value(view, value);
        self.path.pop();
    }

    fn check_fields(&mut self, view: TypeView, map: &Map) {
        for (name, value) in map {
            match view.child_view(name) {
                Some(child) => self.check_child(child.element(name), child.view, value),
                None => {
                    self.path.push(PathElement::Field(name.clone().into()));
                    self.push_error("field not declared in schema");
                    self.path.pop();
                    return;
                }
            }
        }
    }

    fn check_items(&mut self, view: TypeView, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (at, item) in items.iter().enumerate() {
            let element = if view.atomic { Ok(PathElement::Index(at as i64)) } else { view.item_element(item) };
            let element = match element {
                Ok(element) => element,
                Err(error) => return self.push_error(format!("element {at}: {error}")),
            };
            if !view.atomic && !self.duplicates && !seen.insert(element.clone()) {
                self.push_error(format!("duplicate entries for key {element}"));
            }
            self.check_child(element, view.item_view(), item);
        }
    }
}

/// Returns the error about a scalar.
fn scalar_error(ty: &FieldType, value: &Value) -> Option<String> {
    match (ty, value) {
        (FieldType::Int32 | FieldType::Int64 | FieldType::Double, Value::Number(_)) => None,
        (FieldType::Int32 | FieldType::Int64 | FieldType::Double, other) => {
            Some(format!("expected numeric (int or float), got {}", go_type(other)))
        }
        (FieldType::Bool, Value::Bool(_)) => None,
        (FieldType::Bool, other) => Some(format!("expected boolean, got &{{{}}}", go_value(other))),
        (FieldType::String | FieldType::Bytes | FieldType::Duration, Value::String(_)) => None,
        (FieldType::String | FieldType::Bytes | FieldType::Duration, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_value(other)))
        }
        (_, Value::Array(_) | Value::Object(_)) => Some(format!("expected any scalar, got &{{{}}}", go_value(value))),
        _ => None,
    }
}
