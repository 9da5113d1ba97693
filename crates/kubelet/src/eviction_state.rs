//! Pods that are being evicted, and the pressure of the node: written by the eviction manager, read by pod workers and the
//! node's status.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;

use crate::eviction_thresholds::NodePressure;

/// The end of a pod that the kubelet has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Human-readable message.
    pub message: String,
    /// The grace period of its containers.
    pub grace_period: Duration,
}

/// The pods that are being evicted, by uid, and the pressure of the node.
pub struct EvictionState {
    evictions: Mutex<HashMap<String, Eviction>>,
    pressure: watch::Sender<BTreeSet<NodePressure>>,
}

impl Default for EvictionState {
    fn default() -> Self {
        Self { evictions: Mutex::default(), pressure: watch::Sender::new(BTreeSet::new()) }
    }
}

impl EvictionState {
    /// Returns the eviction of a pod.
    pub fn find(&self, uid: &str) -> Option<Eviction> {
        self.evictions.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Forgets a pod that has ended.
    pub fn release_pod(&self, uid: &str) {
        self.evictions.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// Follows the pressure of the node.
    pub fn watch_pressure(&self) -> watch::Receiver<BTreeSet<NodePressure>> {
        self.pressure.subscribe()
    }

    /// Returns the pressure of the node.
    pub fn pressure(&self) -> BTreeSet<NodePressure> {
        self.pressure.borrow().clone()
    }

    /// Sets the pressure of the node; its followers wake up if it is another.
    pub fn set_pressure(&self, pressure: BTreeSet<NodePressure>) {
        self.pressure.send_if_modified(|old| {
            let changed = *old != pressure;
            *old = pressure;
            changed
        });
    }

    /// Evicts a pod; returns whether it is new.
    pub fn evict(&self, uid: &str, eviction: Eviction) -> bool {
        let mut evictions = self.evictions.lock().unwrap_or_else(PoisonError::into_inner);
        evictions.insert(uid.into(), eviction).is_none()
    }
}
