//! Correlates new values with old ones for ratcheting and transition rules: by key in objects, by map keys in lists.

use std::collections::HashMap;

use api::Value;

use crate::structural_schema::{ListType, Structural};

/// The correlated old elements of a list. Only lists with `x-kubernetes-list-type: map` are correlatable.
pub struct CorrelatedItems<'a> {
    old: Vec<Option<&'a Value>>,
}

impl<'a> CorrelatedItems<'a> {
    /// Correlates `items` with the elements of the old list.
    pub fn new(node: &Structural, items: &[Value], old: Option<&'a Value>) -> Self {
        let (ListType::Map(keys), Some(Value::Array(before))) = (&node.list_type, old) else {
            return Self { old: Vec::new() };
        };
        let name = |item: &Value| -> Vec<Option<String>> {
            keys.iter().map(|key| item.get(key).map(Value::to_string)).collect()
        };
        // Of several old elements with the same map keys, the first is used.
        let known: HashMap<Vec<Option<String>>, &Value> = before.iter().rev().map(|item| (name(item), item)).collect();
        Self { old: items.iter().map(|item| known.get(&name(item)).copied()).collect() }
    }

    /// Returns the old element correlated with the element at an index.
    pub fn old_item(&self, at: usize) -> Option<&'a Value> {
        self.old.get(at).copied().flatten()
    }
}
