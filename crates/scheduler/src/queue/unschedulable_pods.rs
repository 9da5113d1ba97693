//! Pods that were tried and fit nowhere, or are gated. They wait for an event that concerns a plug-in that rejected them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use crate::framework::queued_pod::QueuedPodInfo;

/// The pool, indexed by rejecting plug-in, so that an event costs what it may move.
#[derive(Default)]
pub struct UnschedulablePods {
    pods: HashMap<Arc<str>, QueuedPodInfo>,
    by_plugin: HashMap<&'static str, HashSet<Arc<str>>>,
    gated: usize,
}

impl UnschedulablePods {
    /// Numbers of pods that are not gated, and that are.
    pub fn counts(&self) -> (usize, usize) {
        (self.pods.len() - self.gated, self.gated)
    }

    /// Returns a pod by uid.
    pub fn get(&self, uid: &str) -> Option<&QueuedPodInfo> {
        self.pods.get(uid)
    }

    /// Adds a pod, in place of an earlier one with its uid.
    pub fn insert(&mut self, pod: QueuedPodInfo) {
        let uid = pod.pod.uid.clone();
        self.remove(&uid);
        for plugin in pod.rejectors() {
            self.by_plugin.entry(plugin).or_default().insert(uid.clone());
        }
        self.gated += usize::from(pod.gating_plugin.is_some());
        self.pods.insert(uid, pod);
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let pod = self.pods.remove(uid)?;
        for plugin in pod.rejectors() {
            if let Some(uids) = self.by_plugin.get_mut(plugin) {
                uids.remove(uid);
            }
        }
        self.gated -= usize::from(pod.gating_plugin.is_some());
        Some(pod)
    }

    /// Returns the pods that one of the plug-ins rejected.
    pub fn rejected_by(&self, plugins: &[&'static str]) -> Vec<Arc<str>> {
        let mut sets = plugins.iter().filter_map(|plugin| self.by_plugin.get(plugin)).filter(|set| !set.is_empty());
        let Some(first) = sets.next() else { return Vec::new() };
        let rest: Vec<_> = sets.collect();
        if rest.is_empty() {
            return first.iter().cloned().collect();
        }
        let all: HashSet<&Arc<str>> = rest.into_iter().flatten().chain(first).collect();
        all.into_iter().cloned().collect()
    }

    /// Returns the uids of pods by condition.
    pub fn select(&self, condition: impl Fn(&QueuedPodInfo) -> bool) -> Vec<Arc<str>> {
        self.pods.iter().filter(|(_, pod)| condition(pod)).map(|(uid, _)| uid.clone()).collect()
    }
}
