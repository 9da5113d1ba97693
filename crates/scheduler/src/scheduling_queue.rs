//! The scheduling queue: active pods by priority, pods in back-off, and unschedulable pods waiting for an event.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// Time after which an unschedulable pod is retried without an event.
const MAX_UNSCHEDULABLE_DURATION: Duration = Duration::from_secs(5 * 60);

/// A cluster event that may make a pod schedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterEvent {
    /// A node was added, or changed in a property that affects scheduling.
    NodeChanged,
    /// A pod was removed from a node.
    PodDeleted,
}

/// A pod in the queue.
#[derive(Clone, Debug)]
pub(crate) struct QueuedPodInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    priority: i32,
    /// Time of the first addition; orders pods of equal priority.
    since: Instant,
    attempts: u32,
    /// Value of the queue's counter when the pod was popped; see [`SchedulingQueue::add_unschedulable`].
    move_request_cycle: u64,
}

impl QueuedPodInfo {
    pub(crate) fn new(namespace: &str, name: &str, uid: &str, priority: i32) -> Self {
        let (namespace, name, uid) = (namespace.into(), name.into(), uid.into());
        Self { namespace, name, uid, priority, since: Instant::now(), attempts: 0, move_request_cycle: 0 }
    }

    fn backoff_duration(&self) -> Duration {
        INITIAL_BACKOFF.saturating_mul(1 << self.attempts.saturating_sub(1).min(10)).min(MAX_BACKOFF)
    }
}

/// State of a queued pod; a popped pod has none.
enum QueueState {
    Active,
    /// Active from this time on.
    BackingOff(Instant),
    /// Waits for one of these events or for the flush time.
    Unschedulable {
        helped_by: Vec<ClusterEvent>,
        ready_from: Instant,
        flush: Instant,
    },
}

#[derive(Default)]
struct SchedulingQueueState {
    /// By uid.
    pods: HashMap<String, (QueuedPodInfo, QueueState)>,
    move_request_cycle: u64,
}

/// The queue; a single task pops from it.
#[derive(Default)]
pub(crate) struct SchedulingQueue {
    state: Mutex<SchedulingQueueState>,
    changed: Notify,
}

impl SchedulingQueue {
    /// Adds a pod unless it is queued.
    pub(crate) fn add_pod(&self, pod: QueuedPodInfo) {
        self.lock_state().pods.entry(pod.uid.clone()).or_insert((pod, QueueState::Active));
        self.changed.notify_one();
    }

    /// Requeues a changed pod, subject to its back-off.
    pub(crate) fn update_pod(&self, pod: QueuedPodInfo) {
        let mut state = self.lock_state();
        match state.pods.get_mut(&pod.uid) {
            Some((_, place)) => place.move_on_event(None),
            None => drop(state.pods.insert(pod.uid.clone(), (pod, QueueState::Active))),
        }
        self.changed.notify_one();
    }

    /// Removes a pod that no longer needs scheduling.
    pub(crate) fn delete_pod(&self, uid: &str) {
        self.lock_state().pods.remove(uid);
    }

    /// Moves the pods that registered for `event` to back-off.
    pub(crate) fn move_pods_on_event(&self, event: ClusterEvent) {
        let mut state = self.lock_state();
        state.move_request_cycle += 1;
        state.pods.values_mut().for_each(|(_, place)| place.move_on_event(Some(event)));
        self.changed.notify_one();
    }

    /// Adds a pod that no node fits, to be retried on these events; events during its attempt count.
    pub(crate) fn add_unschedulable(&self, mut pod: QueuedPodInfo, helped_by: Vec<ClusterEvent>) {
        pod.attempts += 1;
        let now = Instant::now();
        let ready_from = now + pod.backoff_duration();
        let mut state = self.lock_state();
        let place = match state.move_request_cycle == pod.move_request_cycle {
            true => QueueState::Unschedulable { helped_by, ready_from, flush: now + MAX_UNSCHEDULABLE_DURATION },
            false => QueueState::BackingOff(ready_from),
        };
        state.pods.insert(pod.uid.clone(), (pod, place));
        self.changed.notify_one();
    }

    /// Adds a pod with back-off after a failed binding.
    pub(crate) fn add_backoff(&self, mut pod: QueuedPodInfo) {
        pod.attempts += 1;
        let place = QueueState::BackingOff(Instant::now() + pod.backoff_duration());
        self.lock_state().pods.insert(pod.uid.clone(), (pod, place));
        self.changed.notify_one();
    }

    /// Waits for the next pod to schedule.
    pub(crate) async fn pop(&self) -> QueuedPodInfo {
        loop {
            let changed = self.changed.notified();
            let due = match self.take_ready() {
                Ok(pod) => return pod,
                Err(due) => due,
            };
            match due {
                None => changed.await,
                Some(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    /// Returns the first active pod, or the time at which the next one becomes active.
    fn take_ready(&self) -> Result<QueuedPodInfo, Option<Instant>> {
        let (now, mut state) = (Instant::now(), self.lock_state());
        let wakings = state.move_request_cycle;
        let ready = state.pods.values().filter(|(_, place)| place.ready_at().is_none_or(|at| at <= now));
        let first = ready.map(|(pod, _)| pod).min_by_key(|pod| (-i64::from(pod.priority), pod.since));
        match first.map(|pod| pod.uid.clone()).and_then(|uid| state.pods.remove(&uid)) {
            Some((pod, _)) => Ok(QueuedPodInfo { move_request_cycle: wakings, ..pod }),
            None => Err(state.pods.values().filter_map(|(_, place)| place.ready_at()).min()),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, SchedulingQueueState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl QueueState {
    /// Returns the time from which the pod is active; `None` means now.
    fn ready_at(&self) -> Option<Instant> {
        match self {
            QueueState::Active => None,
            QueueState::BackingOff(at) => Some(*at),
            QueueState::Unschedulable { flush, .. } => Some(*flush),
        }
    }

    /// Moves an unschedulable pod to back-off if it registered for `event`; `None` matches any.
    fn move_on_event(&mut self, event: Option<ClusterEvent>) {
        if let QueueState::Unschedulable { helped_by, ready_from, .. } = self
            && event.is_none_or(|event| helped_by.contains(&event))
        {
            *self = QueueState::BackingOff(*ready_from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32) -> QueuedPodInfo {
        QueuedPodInfo::new("ns", name, name, priority)
    }

    #[tokio::test(start_paused = true)]
    async fn pods_are_popped_by_priority_then_time() {
        let queue = SchedulingQueue::default();
        for (name, priority) in [("old", 0), ("high", 10), ("young", 0)] {
            queue.add_pod(pod(name, priority));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        queue.add_pod(pod("high", 10));
        let order = [queue.pop().await.name, queue.pop().await.name, queue.pop().await.name];
        assert_eq!(order, ["high", "old", "young"]);
        assert!(queue.take_ready().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn event_requeues_registered_pods_after_their_backoff() {
        let (queue, start) = (SchedulingQueue::default(), Instant::now());
        queue.add_pod(pod("a", 0));
        let tried = queue.pop().await;
        queue.add_unschedulable(tried, vec![ClusterEvent::PodDeleted]);
        queue.move_pods_on_event(ClusterEvent::NodeChanged);
        assert_eq!(queue.take_ready().unwrap_err(), Some(start + MAX_UNSCHEDULABLE_DURATION));
        queue.move_pods_on_event(ClusterEvent::PodDeleted);
        let tried = queue.pop().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF);
        queue.add_unschedulable(tried, vec![ClusterEvent::PodDeleted]);
        queue.move_pods_on_event(ClusterEvent::PodDeleted);
        queue.pop().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF + 2 * INITIAL_BACKOFF);
    }

    #[tokio::test(start_paused = true)]
    async fn event_during_an_attempt_requeues_the_pod() {
        let (queue, start) = (SchedulingQueue::default(), Instant::now());
        queue.add_pod(pod("a", 0));
        let tried = queue.pop().await;
        queue.move_pods_on_event(ClusterEvent::NodeChanged);
        queue.add_unschedulable(tried, vec![ClusterEvent::NodeChanged]);
        queue.pop().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF);
    }

    #[tokio::test(start_paused = true)]
    async fn unschedulable_pod_is_retried_after_the_maximum_duration() {
        let (queue, start) = (SchedulingQueue::default(), Instant::now());
        queue.add_pod(pod("a", 0));
        let tried = queue.pop().await;
        queue.add_unschedulable(tried, vec![ClusterEvent::NodeChanged]);
        queue.pop().await;
        assert_eq!(start.elapsed(), MAX_UNSCHEDULABLE_DURATION);
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_is_bounded_and_deleted_pods_stay_deleted() {
        let queue = SchedulingQueue::default();
        let mut waiting = pod("a", 0);
        waiting.attempts = 40;
        assert_eq!(waiting.backoff_duration(), MAX_BACKOFF);
        queue.add_backoff(waiting);
        queue.delete_pod("a");
        assert_eq!(queue.take_ready().unwrap_err(), None);
    }
}
