//! PrioritySort: pods of higher priority first, then those that wait longer.

use std::cmp::{Ordering, Reverse};

use crate::{
    framework::extension_points::{Plugin, QueueSortPlugin},
    framework::queued_pod::QueuedPodInfo,
};

/// The plug-in.
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn as_queue_sort(&self) -> Option<&dyn QueueSortPlugin> {
        Some(self)
    }
}

impl QueueSortPlugin for PrioritySort {
    fn compare(&self, a: &QueuedPodInfo, b: &QueuedPodInfo) -> Ordering {
        let key = |entry: &QueuedPodInfo| (Reverse(entry.pod.priority()), entry.timestamp);
        key(a).cmp(&key(b))
    }
}
