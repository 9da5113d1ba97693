//! Reading the cells of one object.

use jiff::Timestamp;

use crate::{Value, meta, quantity::Quantity, time};

/// One object to print, and when.
pub(super) struct Row<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl<'a> Row<'a> {
    pub fn name(&self) -> Value {
        meta::name(self.object).into()
    }

    /// The text at a path, or "".
    pub fn text(&self, path: &[&str]) -> &'a str {
        meta::text(self.object, path)
    }

    /// The text at a path, or another one where it is absent or empty.
    pub fn text_or(&self, path: &[&str], absent: &'a str) -> Value {
        Some(self.text(path)).filter(|text| !text.is_empty()).unwrap_or(absent).into()
    }

    /// The number at a path, or 0.
    pub fn number(&self, path: &[&str]) -> i64 {
        meta::number(self.object, path)
    }

    pub fn list(&self, path: &[&str]) -> &'a [Value] {
        meta::list(self.object, path)
    }

    pub fn at(&self, path: &[&str]) -> Option<&'a Value> {
        meta::at(self.object, path)
    }

    /// The truth value at a path, or another one.
    pub fn boolean_or(&self, path: &[&str], absent: bool) -> Value {
        self.at(path).and_then(Value::as_bool).unwrap_or(absent).into()
    }

    /// How many entries a list or a map has.
    pub fn count(&self, path: &[&str]) -> usize {
        match self.at(path) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// How long ago a time was.
    pub fn since(&self, path: &[&str]) -> String {
        time::age(Some(self.text(path)), self.now)
    }

    pub fn age(&self) -> Value {
        self.since(&["metadata", "creationTimestamp"]).into()
    }

    pub fn deleting(&self) -> bool {
        meta::is_deleting(self.object)
    }

    /// The first condition of a type.
    pub fn condition(&self, ty: &str) -> Option<&'a Value> {
        self.list(&["status", "conditions"]).iter().find(|condition| condition["type"] == ty)
    }

    /// Whether the first condition of a type holds.
    pub fn holds(&self, ty: &str) -> bool {
        self.condition(ty).is_some_and(|condition| condition["status"] == "True")
    }

    /// The annotation of a name, or "".
    pub fn annotation(&self, name: &str) -> &'a str {
        self.text(&["metadata", "annotations", name])
    }
}

/// A quantity as it is written; 0 where there is none.
pub(super) fn quantity(value: Option<&Value>) -> String {
    let text = match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return "0".to_owned(),
    };
    Quantity::parse(&text).map_or(text, |quantity| quantity.to_string())
}
