//! A binary heap whose entries can be found, changed and removed by key.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use crate::framework::queued_pod::QueuedPodInfo;

/// Orders the pods of a heap.
pub type ComparePods = Arc<dyn Fn(&QueuedPodInfo, &QueuedPodInfo) -> Ordering + Send + Sync>;

/// Pods, the least first. Invariant: `places` has the place in `entries` of every pod, by uid.
pub struct KeyedHeap {
    entries: Vec<QueuedPodInfo>,
    places: HashMap<Arc<str>, usize>,
    compare: ComparePods,
}

impl KeyedHeap {
    /// Creates an empty heap.
    pub fn new(compare: ComparePods) -> Self {
        Self { entries: Vec::new(), places: HashMap::new(), compare }
    }

    /// Number of pods.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns a pod by uid.
    pub fn get(&self, uid: &str) -> Option<&QueuedPodInfo> {
        self.entries.get(*self.places.get(uid)?)
    }

    /// The first pod.
    pub fn peek(&self) -> Option<&QueuedPodInfo> {
        self.entries.first()
    }

    /// Adds a pod, in place of an earlier one with its uid.
    pub fn insert(&mut self, pod: QueuedPodInfo) {
        self.remove(&pod.pod.uid.clone());
        self.places.insert(pod.pod.uid.clone(), self.entries.len());
        self.entries.push(pod);
        self.move_up(self.entries.len() - 1);
    }

    /// Removes the first pod.
    pub fn pop(&mut self) -> Option<QueuedPodInfo> {
        (!self.entries.is_empty()).then(|| self.remove_at(0))
    }

    /// Removes a pod by uid.
    pub fn remove(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let place = *self.places.get(uid)?;
        Some(self.remove_at(place))
    }

    fn remove_at(&mut self, place: usize) -> QueuedPodInfo {
        let removed = self.entries.swap_remove(place);
        self.places.remove(&removed.pod.uid);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.pod.uid.clone(), place);
            self.move_down(place);
            self.move_up(place);
        }
        removed
    }

    fn is_before(&self, a: usize, b: usize) -> bool {
        (self.compare)(&self.entries[a], &self.entries[b]).is_lt()
    }

    fn move_up(&mut self, mut place: usize) {
        while place > 0 && self.is_before(place, (place - 1) / 2) {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
    }

    fn move_down(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter().filter(|child| *child < self.entries.len());
            let first = children.reduce(|a, b| if self.is_before(b, a) { b } else { a });
            match first.filter(|child| self.is_before(*child, place)) {
                Some(child) => self.swap(place, child),
                None => return,
            }
            place = first.unwrap_or(place);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.places.insert(self.entries[a].pod.uid.clone(), a);
        self.places.insert(self.entries[b].pod.uid.clone(), b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::pod_info::PodInfo;

    fn pod(uid: u32) -> QueuedPodInfo {
        let pod = serde_json::json!({"metadata": {"uid": format!("{uid:03}")}});
        QueuedPodInfo::new(Arc::new(PodInfo::from_pod(&serde_json::from_value(pod).unwrap())), Default::default())
    }

    #[test]
    fn pods_come_out_in_order_and_can_be_removed() {
        let mut heap = KeyedHeap::new(Arc::new(|a, b| a.pod.uid.cmp(&b.pod.uid)));
        let mut random = fastrand::Rng::with_seed(7);
        let mut uids: Vec<u32> = (0..200).collect();
        random.shuffle(&mut uids);
        uids.iter().for_each(|uid| heap.insert(pod(*uid)));
        heap.insert(pod(5));
        let removed: Vec<u32> = uids.iter().copied().take(50).collect();
        removed.iter().for_each(|uid| assert!(heap.remove(&format!("{uid:03}")).is_some()));
        assert!(heap.get(&format!("{:03}", removed[0])).is_none() && heap.len() == 150);
        let mut expected = uids[50..].to_vec();
        expected.sort_unstable();
        let popped: Vec<u32> = std::iter::from_fn(|| heap.pop()).map(|info| info.pod.uid.parse().unwrap()).collect();
        assert_eq!(popped, expected);
    }
}
