//! Pods that are nominated for nodes, as one cycle sees them.

use std::{collections::HashMap, sync::Arc};

use crate::views::pod_info::PodInfo;

/// Nominated pods by node. A cycle works on one state of it.
#[derive(Clone, Debug, Default)]
pub struct NominatedPods {
    /// By node; no list is empty.
    pub by_node: HashMap<Arc<str>, Vec<Arc<PodInfo>>>,
}

impl NominatedPods {
    /// Pods that are nominated for a node.
    pub fn for_node(&self, name: &str) -> &[Arc<PodInfo>] {
        if self.by_node.is_empty() {
            return &[];
        }
        self.by_node.get(name).map_or(&[], Vec::as_slice)
    }
}
