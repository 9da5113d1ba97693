//! Accessors for the fields of a printed object.

use jiff::Timestamp;

use crate::{Value, meta, quantity::Quantity, time};

/// The printed object, or a part of it, and the current time.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl<'a> Row<'a> {
    /// Returns a row for a part of the object.
    pub fn part(self, object: &'a Value) -> Self {
        Row { object, ..self }
    }

    /// Returns the value at a path such as `spec.ports.0.name`.
    pub fn at(&self, path: &str) -> Option<&'a Value> {
        let step = |value: &'a Value, step: &str| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        };
        path.split('.').try_fold(self.object, step).filter(|value| !value.is_null())
    }

    /// Returns the string at a path, or "".
    pub fn text(&self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Formats the string, number or boolean at a path.
    pub fn shown(&self, path: &str) -> String {
        shown(self.at(path))
    }

    /// Returns the integer at a path, or 0.
    pub fn number(&self, path: &str) -> i64 {
        self.at(path).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether a path is true.
    pub fn is_true(&self, path: &str) -> bool {
        self.at(path) == Some(&Value::Bool(true))
    }

    /// Iterates over the list at a path.
    pub fn list(&self, path: &str) -> impl DoubleEndedIterator<Item = Row<'a>> + ExactSizeIterator + use<'a> {
        let row = *self;
        let list = self.at(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(move |item| row.part(item))
    }

    /// The number of entries of a list or map.
    pub fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The age of a timestamp.
    pub fn since(&self, path: &str) -> String {
        time::age(Some(self.text(path)), self.now)
    }

    /// Formats the quantity at a path; 0 if absent.
    pub fn quantity(&self, path: &str) -> String {
        quantity(self.at(path))
    }

    pub fn deleting(&self) -> bool {
        meta::is_deleting(self.object)
    }

    /// The first condition of a type.
    pub fn condition(&self, ty: &str) -> Option<Row<'a>> {
        self.list("status.conditions").find(|condition| condition.text("type") == ty)
    }

    /// Whether the first condition of a type is true.
    pub fn holds(&self, ty: &str) -> bool {
        self.condition(ty).is_some_and(|condition| condition.text("status") == "True")
    }

    /// The annotation of a name, or "".
    pub fn annotation(&self, name: &str) -> &'a str {
        meta::string_at(self.object, &["metadata", "annotations", name])
    }
}

fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        _ => String::new(),
    }
}

/// Formats a quantity; 0 if absent.
pub(super) fn quantity(value: Option<&Value>) -> String {
    let text = shown(value);
    Quantity::parse(&text).map_or(if text.is_empty() { "0".to_owned() } else { text }, |amount| amount.to_string())
}
