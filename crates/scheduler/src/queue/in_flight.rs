//! Events that happen while pods are being scheduled.
//!
//! A pod that turns out to be unschedulable is put back with the events since it was taken: one of them may have made it
//! schedulable after its cycle looked.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use crate::framework::cluster_event::{ClusterEvent, EventObject};

/// Pods in flight and the events since the oldest of them was taken.
#[derive(Default)]
pub struct InFlightPods {
    /// The number of the next event or pod.
    next: u64,
    pods: HashMap<Arc<str>, u64>,
    starts: BTreeSet<u64>,
    events: VecDeque<(u64, ClusterEvent, Arc<EventObject>)>,
}

impl InFlightPods {
    /// Notes that a pod is being scheduled; returns `false` if it is already.
    pub fn add_pod(&mut self, uid: &Arc<str>) -> bool {
        if self.pods.contains_key(uid) {
            return false;
        }
        let start = self.take_number();
        self.pods.insert(uid.clone(), start);
        self.starts.insert(start);
        true
    }

    /// Whether the pod is being scheduled.
    pub fn contains(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Notes an event, if any pod is being scheduled.
    pub fn add_event(&mut self, event: ClusterEvent, object: &Arc<EventObject>) {
        if !self.pods.is_empty() {
            let number = self.take_number();
            self.events.push_back((number, event, object.clone()));
        }
    }

    /// Ends a pod's flight and returns the events since it began.
    pub fn remove_pod(&mut self, uid: &str) -> Vec<(ClusterEvent, Arc<EventObject>)> {
        let Some(start) = self.pods.remove(uid) else { return Vec::new() };
        self.starts.remove(&start);
        let since = self.events.iter().filter(|(number, ..)| *number > start);
        let events = since.map(|(_, event, object)| (*event, object.clone())).collect();
        let oldest = self.starts.first().copied().unwrap_or(u64::MAX);
        while self.events.front().is_some_and(|(number, ..)| *number < oldest) {
            self.events.pop_front();
        }
        events
    }

    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_the_events_of_their_flight() {
        let mut pods = InFlightPods::default();
        let nothing = Arc::new(EventObject::Nothing);
        pods.add_event(ClusterEvent::ASSIGNED_POD_ADD, &nothing);
        assert!(pods.add_pod(&"1".into()) && !pods.add_pod(&"1".into()));
        pods.add_event(ClusterEvent::ASSIGNED_POD_ADD, &nothing);
        assert!(pods.add_pod(&"2".into()));
        pods.add_event(ClusterEvent::ASSIGNED_POD_DELETE, &nothing);
        assert_eq!(pods.remove_pod("1").len(), 2);
        assert_eq!((pods.events.len(), pods.remove_pod("2").len(), pods.events.len()), (1, 1, 0));
        assert!(pods.remove_pod("2").is_empty());
    }
}
