//! The nodes as one scheduling cycle sees them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::views::{
    node_info::{NodeInfo, next_generation},
    pod_info::PodInfo,
};

/// Number of changes that are kept for those that count pods by what changed.
const CHANGES: usize = 1024;

/// A node before and after a change.
pub type NodeChange = (Arc<NodeInfo>, Arc<NodeInfo>);

/// All nodes in the order of the search. Brought up to date before every cycle, at the cost of what changed.
#[derive(Default)]
pub struct Snapshot {
    nodes: Vec<Arc<NodeInfo>>,
    positions: HashMap<Arc<str>, usize>,
    /// Positions of nodes with pods that have inter-pod affinity.
    affinity_nodes: Vec<usize>,
    /// Positions of nodes with pods that have required anti-affinity.
    anti_affinity_nodes: Vec<usize>,
    /// Unique to this order of nodes.
    order: u64,
    /// Number of changes since the snapshot has this order.
    version: u64,
    /// The last changes.
    changes: VecDeque<NodeChange>,
}

impl Snapshot {
    /// Creates a snapshot of nodes in this order.
    pub fn from_nodes(nodes: Vec<Arc<NodeInfo>>) -> Self {
        static ORDERS: AtomicU64 = AtomicU64::new(1);
        let positions = nodes.iter().enumerate().map(|(position, node)| (node.name().clone(), position)).collect();
        let order = ORDERS.fetch_add(1, Ordering::Relaxed);
        let mut snapshot = Self { nodes, positions, order, ..Self::default() };
        snapshot.list_affinity_nodes();
        snapshot
    }

    /// Replaces nodes by their new states; nodes that are not in the snapshot are left out.
    pub fn replace_nodes(&mut self, changed: impl Iterator<Item = Arc<NodeInfo>>) {
        let mut affinity_changed = false;
        for info in changed {
            let Some(&position) = self.positions.get(info.name()) else { continue };
            let old = &self.nodes[position];
            affinity_changed |= (old.affinity_pods > 0) != (info.affinity_pods > 0)
                || (old.anti_affinity_pods > 0) != (info.anti_affinity_pods > 0);
            let old = std::mem::replace(&mut self.nodes[position], info.clone());
            self.version += 1;
            if self.changes.len() == CHANGES {
                self.changes.pop_front();
            }
            self.changes.push_back((old, info));
        }
        if affinity_changed {
            self.list_affinity_nodes();
        }
    }

    /// Puts a pod on a node of the snapshot alone, and returns the node as it was; `None` if there is no such node.
    pub fn assume_pod(&mut self, node: &str, pod: Arc<PodInfo>) -> Option<Arc<NodeInfo>> {
        let before = self.get(node)?.clone();
        let mut info = NodeInfo::clone(&before);
        info.add_pod(pod);
        info.generation = next_generation();
        self.replace_nodes([Arc::new(info)].into_iter());
        Some(before)
    }

    /// A number that is unique to this order of nodes; positions are comparable as long as it is the same.
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Number of changes since the snapshot has its order.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the changes since a version of an order; `None` if they are not known any more.
    pub fn changes_since(&self, order: u64, version: u64) -> Option<impl Iterator<Item = &NodeChange>> {
        let count = usize::try_from(self.version.checked_sub(version)?).ok()?;
        let is_known = order == self.order && count <= self.changes.len();
        is_known.then(|| self.changes.iter().skip(self.changes.len() - count))
    }

    /// All nodes.
    pub fn nodes(&self) -> &[Arc<NodeInfo>] {
        &self.nodes
    }

    /// Returns a node by name.
    pub fn get(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.nodes.get(self.position(name)?)
    }

    /// Returns the position of a node in [`Snapshot::nodes`].
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    /// Nodes with pods that have inter-pod affinity.
    pub fn affinity_nodes(&self) -> impl Iterator<Item = &Arc<NodeInfo>> {
        self.affinity_nodes.iter().map(|&position| &self.nodes[position])
    }

    /// Nodes with pods that have required anti-affinity.
    pub fn anti_affinity_nodes(&self) -> impl Iterator<Item = &Arc<NodeInfo>> {
        self.anti_affinity_nodes.iter().map(|&position| &self.nodes[position])
    }

    fn list_affinity_nodes(&mut self) {
        let positions = |has: fn(&NodeInfo) -> bool| {
            let nodes = self.nodes.iter().enumerate();
            nodes.filter(|(_, node)| has(node)).map(|(position, _)| position).collect()
        };
        let (affinity, anti_affinity) =
            (positions(|node| node.affinity_pods > 0), positions(|node| node.anti_affinity_pods > 0));
        (self.affinity_nodes, self.anti_affinity_nodes) = (affinity, anti_affinity);
    }
}
