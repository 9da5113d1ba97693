//! Which old value a new one stands for: what is at the same key, or the element of a list that has the same keys.

use std::collections::HashMap;

use api::Value;

use crate::schema::{ListKind, Node};

/// The old elements of the elements of a list. Only lists with keys have any: the elements of others cannot be told apart.
pub struct Items<'a> {
    old: Vec<Option<&'a Value>>,
}

impl<'a> Items<'a> {
    /// Finds the old elements of `items`.
    pub fn new(node: &Node, items: &[Value], old: Option<&'a Value>) -> Self {
        let (ListKind::Map(keys), Some(Value::Array(before))) = (&node.list, old) else {
            return Self { old: Vec::new() };
        };
        let name = |item: &Value| -> Vec<Option<String>> {
            keys.iter().map(|key| item.get(key).map(Value::to_string)).collect()
        };
        // Of several with the same keys the first counts.
        let known: HashMap<Vec<Option<String>>, &Value> = before.iter().rev().map(|item| (name(item), item)).collect();
        Self { old: items.iter().map(|item| known.get(&name(item)).copied()).collect() }
    }

    /// The old element of the element at a place.
    pub fn of(&self, at: usize) -> Option<&'a Value> {
        self.old.get(at).copied().flatten()
    }
}
