//! Counts over all nodes that equal pods share, brought up to date at the cost of the nodes that changed.
//!
//! A plug-in that sums something over all nodes for every pod keeps the sums of the last classes here. Guarantee: the counts are
//! those of a fresh count over the snapshot, as long as what a node adds depends on the class, the context and the node alone.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    snapshot::Snapshot,
    views::{node_info::NodeInfo, pod_info::PodClass},
};

/// Number of classes whose counts are kept.
const CLASSES: usize = 8;

/// Counts of some classes, the last used first. `C` is what they depend on beside class and nodes.
pub struct NodeCounts<C, T> {
    entries: Mutex<Vec<ClassCounts<C, T>>>,
}

struct ClassCounts<C, T> {
    class: Arc<PodClass>,
    context: C,
    order: u64,
    version: u64,
    counts: Arc<T>,
}

impl<C, T> Default for NodeCounts<C, T> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<C: PartialEq, T: Default + Clone> NodeCounts<C, T> {
    /// Returns the counts of a class over the snapshot. `add` adds what a node contributes, times the factor, which is -1 to
    /// take it away again.
    ///
    /// Counts that are still in use are copied when they change, so the result should be dropped with the search for a node.
    pub fn count(
        &self,
        class: &Arc<PodClass>,
        context: C,
        snapshot: &Snapshot,
        mut add: impl FnMut(&mut T, &NodeInfo, i64),
    ) -> Arc<T> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries.iter().position(|entry| Arc::ptr_eq(&entry.class, class) && entry.context == context);
        let known = found.map(|place| entries.remove(place));
        let (order, version) = (snapshot.order(), snapshot.version());
        let changes = known.as_ref().and_then(|known| snapshot.changes_since(known.order, known.version));
        let counts = match (known.as_ref().map(|known| known.counts.clone()), changes) {
            (Some(counts), Some(mut changes)) => {
                drop(known);
                let mut counts = counts;
                if let Some(first) = changes.next() {
                    let kept = Arc::make_mut(&mut counts);
                    for (old, new) in std::iter::once(first).chain(changes) {
                        add(kept, old, -1);
                        add(kept, new, 1);
                    }
                }
                counts
            }
            _ => {
                let mut counts = T::default();
                snapshot.nodes().iter().for_each(|node| add(&mut counts, node, 1));
                Arc::new(counts)
            }
        };
        entries.truncate(CLASSES - 1);
        entries.insert(0, ClassCounts { class: class.clone(), context, order, version, counts: counts.clone() });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, milli_cpu: i64) -> Arc<NodeInfo> {
        let node = serde_json::json!({"metadata": {"name": name}});
        let view = crate::views::node_info::NodeView::from_node(&serde_json::from_value(node).unwrap());
        let mut info = NodeInfo::new(Arc::new(view));
        info.requested.milli_cpu = milli_cpu;
        Arc::new(info)
    }

    #[test]
    fn counts_follow_changed_nodes_without_a_fresh_count() {
        let counts: NodeCounts<u8, i64> = NodeCounts::default();
        let class = Arc::new(PodClass::default());
        let mut snapshot = Snapshot::from_nodes(vec![node("a", 1), node("b", 2)]);
        let mut visited = 0;
        let mut count = |snapshot: &Snapshot, context| {
            let sum = counts.count(&class, context, snapshot, |sum, node, factor| {
                visited += 1;
                *sum += factor * node.requested.milli_cpu;
            });
            (*sum, visited)
        };
        assert_eq!(count(&snapshot, 0), (3, 2));
        assert_eq!(count(&snapshot, 0), (3, 2));
        snapshot.replace_nodes([node("b", 7)].into_iter());
        assert_eq!(count(&snapshot, 0), (8, 4));
        assert_eq!(count(&snapshot, 1), (8, 6), "another context is counted afresh");
        assert_eq!(count(&Snapshot::from_nodes(vec![node("a", 5)]), 0), (5, 7), "other nodes are counted afresh");
    }

    #[test]
    fn more_changes_than_are_kept_lead_to_a_fresh_count() {
        let counts: NodeCounts<(), i64> = NodeCounts::default();
        let class = Arc::new(PodClass::default());
        let mut snapshot = Snapshot::from_nodes(vec![node("a", 0)]);
        for _ in 0..3 {
            (1..=2000).for_each(|milli_cpu| snapshot.replace_nodes([node("a", milli_cpu)].into_iter()));
            let sum =
                counts.count(&class, (), &snapshot, |sum, node, factor| *sum += factor * node.requested.milli_cpu);
            assert_eq!(*sum, 2000);
        }
    }
}
