//! Accessors for the fields of a printed object.

use jiff::Timestamp;

use crate::{Value, meta, quantity::Quantity, time};

/// The printed object, or a part of it, and the current time.
#[derive(Clone, Copy)]
pub(super) struct PrintedObject<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl<'a> PrintedObject<'a> {
    /// Returns a row for a part of the object.
    pub fn with_object(self, object: &'a Value) -> Self {
        PrintedObject { object, ..self }
    }

    /// Returns the value at a path such as `spec.ports.0.name`.
    pub fn value_at(&self, path: &str) -> Option<&'a Value> {
        let step = |value: &'a Value, step: &str| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            value => value.get(step),
        };
        path.split('.').try_fold(self.object, step).filter(|value| !value.is_null())
    }

    /// Returns the string at a path, or "".
    pub fn string_at(&self, path: &str) -> &'a str {
        self.value_at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Formats the string, number or boolean at a path.
    pub fn format_at(&self, path: &str) -> String {
        format_scalar(self.value_at(path))
    }

    /// Returns the integer at a path, or 0.
    pub fn integer_at(&self, path: &str) -> i64 {
        self.value_at(path).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether a path is true.
    pub fn is_true(&self, path: &str) -> bool {
        self.value_at(path) == Some(&Value::Bool(true))
    }

    /// Iterates over the list at a path.
    pub fn list_at(
        &self,
        path: &str,
    ) -> impl DoubleEndedIterator<Item = PrintedObject<'a>> + ExactSizeIterator + use<'a> {
        let row = *self;
        let list = self.value_at(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().map(move |item| row.with_object(item))
    }

    /// The number of entries of a list or map.
    pub fn count_at(&self, path: &str) -> usize {
        match self.value_at(path) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The age of a timestamp.
    pub fn age_at(&self, path: &str) -> String {
        time::format_age(Some(self.string_at(path)), self.now)
    }

    /// Formats the quantity at a path; 0 if absent.
    pub fn quantity_at(&self, path: &str) -> String {
        format_quantity(self.value_at(path))
    }

    pub fn is_deleting(&self) -> bool {
        meta::is_deleting(self.object)
    }

    /// The first condition of a type.
    pub fn find_condition(&self, ty: &str) -> Option<PrintedObject<'a>> {
        self.list_at("status.conditions").find(|condition| condition.string_at("type") == ty)
    }

    /// Whether the first condition of a type is true.
    pub fn is_condition_true(&self, ty: &str) -> bool {
        self.find_condition(ty).is_some_and(|condition| condition.string_at("status") == "True")
    }

    /// The annotation of a name, or "".
    pub fn annotation(&self, name: &str) -> &'a str {
        meta::string_at(self.object, &["metadata", "annotations", name])
    }
}

fn format_scalar(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        _ => String::new(),
    }
}

/// Formats a quantity; 0 if absent.
pub(super) fn format_quantity(value: Option<&Value>) -> String {
    let text = format_scalar(value);
    Quantity::parse(&text).map_or(if text.is_empty() { "0".to_owned() } else { text }, |amount| amount.to_string())
}
