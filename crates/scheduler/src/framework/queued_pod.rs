//! A pod that waits for a node, with what its earlier tries found out.

use std::{sync::Arc, time::Duration};

use crate::views::pod_info::PodInfo;

/// Time since the queue was created.
pub type QueueTime = Duration;

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub struct QueuedPodInfo {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// When the pod was added, or last tried.
    pub timestamp: QueueTime,
    /// Number of tries.
    pub attempts: u32,
    /// When the pod was first in the active queue.
    pub initial_attempt: Option<QueueTime>,
    /// Plug-ins that rejected the pod in its last try.
    pub unschedulable_plugins: Vec<&'static str>,
    /// Plug-ins that wait for something outside of the scheduler.
    pub pending_plugins: Vec<&'static str>,
    /// The plug-in that keeps the pod out of the active queue.
    pub gating_plugin: Option<&'static str>,
    /// Number of tries in which the pod was rejected.
    pub unschedulable_count: u32,
    /// Number of tries in a row that ended with an error.
    pub consecutive_errors: u32,
    /// When the pod last left the pool because it was there for too long.
    pub flushed_at: QueueTime,
    /// Whether the pod left the pool because it was there for too long.
    pub was_flushed: bool,
}

impl QueuedPodInfo {
    /// Creates the entry of a pod that was not tried yet.
    pub fn new(pod: Arc<PodInfo>, timestamp: QueueTime) -> Self {
        Self {
            pod,
            timestamp,
            attempts: 0,
            initial_attempt: None,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            gating_plugin: None,
            unschedulable_count: 0,
            consecutive_errors: 0,
            flushed_at: QueueTime::ZERO,
            was_flushed: false,
        }
    }

    /// The plug-ins that the pod waits for.
    pub fn rejectors(&self) -> impl Iterator<Item = &'static str> + '_ {
        let pending = self.pending_plugins.iter().filter(|plugin| !self.unschedulable_plugins.contains(plugin));
        self.unschedulable_plugins.iter().chain(pending).copied()
    }
}
