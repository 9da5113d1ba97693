//! The order in which nodes are tried: zone by zone in turn, so that the first nodes of a search are spread over zones.

use std::{collections::HashMap, sync::Arc};

use crate::views::node_info::NodeView;

/// Names of nodes by zone. Invariant: `zones` has the keys of `nodes_by_zone`, in the order of their appearance.
#[derive(Default)]
pub struct NodeTree {
    nodes_by_zone: HashMap<String, Vec<Arc<str>>>,
    zones: Vec<String>,
    zone_of: HashMap<Arc<str>, String>,
}

impl NodeTree {
    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.zone_of.len()
    }

    /// Adds a node or moves it to its zone; returns whether the order changed.
    pub fn set_node(&mut self, node: &NodeView) -> bool {
        let zone = node.zone_key();
        if self.zone_of.get(&node.name) == Some(&zone) {
            return false;
        }
        self.remove_node(&node.name);
        self.zone_of.insert(node.name.clone(), zone.clone());
        if !self.nodes_by_zone.contains_key(&zone) {
            self.zones.push(zone.clone());
        }
        self.nodes_by_zone.entry(zone).or_default().push(node.name.clone());
        true
    }

    /// Removes a node; returns whether it was there.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let Some(zone) = self.zone_of.remove(name) else { return false };
        if let Some(nodes) = self.nodes_by_zone.get_mut(&zone) {
            nodes.retain(|node| node.as_ref() != name);
            if nodes.is_empty() {
                self.nodes_by_zone.remove(&zone);
                self.zones.retain(|known| *known != zone);
            }
        }
        true
    }

    /// Lists all nodes, taking one of each zone in turn.
    pub fn list(&self) -> Vec<Arc<str>> {
        let zones: Vec<&Vec<Arc<str>>> = self.zones.iter().filter_map(|zone| self.nodes_by_zone.get(zone)).collect();
        let longest = zones.iter().map(|nodes| nodes.len()).max().unwrap_or(0);
        (0..longest).flat_map(|row| zones.iter().filter_map(move |nodes| nodes.get(row).cloned())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str) -> NodeView {
        let labels = serde_json::json!({"topology.kubernetes.io/zone": zone});
        let node = serde_json::json!({"metadata": {"name": name, "labels": labels}});
        NodeView::from_node(&serde_json::from_value(node).unwrap())
    }

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c")] {
            assert!(tree.set_node(&node(name, zone)));
        }
        assert_eq!(tree.list().join(" "), "a1 b1 c1 a2 a3");
        assert!(tree.set_node(&node("a2", "b")) && !tree.set_node(&node("a2", "b")));
        assert!(tree.remove_node("c1") && !tree.remove_node("c1"));
        assert_eq!((tree.list().join(" "), tree.len()), ("a1 b1 a3 a2".into(), 4));
    }
}
