//! Pods that wait for a node: ready ones by priority, failed ones until something changes that may help them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// An unschedulable pod is tried again after this time even if nothing was seen to change.
const FLUSH: Duration = Duration::from_secs(5 * 60);

/// A change in the cluster that may make room for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A node came, or changed in a way that matters.
    Node,
    /// A pod left a node.
    PodGone,
}

/// A pod that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    priority: i32,
    /// When it was first added; among equals the one that waits longest is first.
    since: Instant,
    attempts: u32,
    /// The number of wakings when it was handed out; see [`Queue::unschedulable`].
    wakings: u64,
}

impl Waiting {
    pub(crate) fn new(namespace: &str, name: &str, uid: &str, priority: i32) -> Self {
        let (namespace, name, uid) = (namespace.into(), name.into(), uid.into());
        Self { namespace, name, uid, priority, since: Instant::now(), attempts: 0, wakings: 0 }
    }

    fn backoff(&self) -> Duration {
        INITIAL_BACKOFF.saturating_mul(1 << self.attempts.saturating_sub(1).min(10)).min(MAX_BACKOFF)
    }
}

/// Where a pod is. A pod that was handed out is nowhere.
enum Place {
    Ready,
    /// Ready at a time.
    BackingOff(Instant),
    /// Waits for one of these events, or for the time.
    Unschedulable {
        helped_by: Vec<Event>,
        ready_from: Instant,
        flush: Instant,
    },
}

#[derive(Default)]
struct State {
    /// By uid.
    pods: HashMap<String, (Waiting, Place)>,
    wakings: u64,
}

/// The queue; one task takes from it.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

impl Queue {
    /// Adds a pod, unless it waits already.
    pub(crate) fn add(&self, pod: Waiting) {
        self.state().pods.entry(pod.uid.clone()).or_insert((pod, Place::Ready));
        self.changed.notify_one();
    }

    /// The pod itself changed: it is tried again after its back-off.
    pub(crate) fn pod_changed(&self, pod: Waiting) {
        let mut state = self.state();
        match state.pods.get_mut(&pod.uid) {
            Some((_, place)) => place.wake(None),
            None => drop(state.pods.insert(pod.uid.clone(), (pod, Place::Ready))),
        }
        self.changed.notify_one();
    }

    /// Drops a pod that no longer needs a node.
    pub(crate) fn remove(&self, uid: &str) {
        self.state().pods.remove(uid);
    }

    /// Something changed that may help the pods that wait for it.
    pub(crate) fn wake(&self, event: Event) {
        let mut state = self.state();
        state.wakings += 1;
        state.pods.values_mut().for_each(|(_, place)| place.wake(Some(event)));
        self.changed.notify_one();
    }

    /// No node fits the pod; these events may help. If something changed while it was tried, it is tried again.
    pub(crate) fn unschedulable(&self, mut pod: Waiting, helped_by: Vec<Event>) {
        pod.attempts += 1;
        let now = Instant::now();
        let ready_from = now + pod.backoff();
        let mut state = self.state();
        let place = match state.wakings == pod.wakings {
            true => Place::Unschedulable { helped_by, ready_from, flush: now + FLUSH },
            false => Place::BackingOff(ready_from),
        };
        state.pods.insert(pod.uid.clone(), (pod, place));
        self.changed.notify_one();
    }

    /// The pod could not be bound, for a reason that may pass.
    pub(crate) fn retry(&self, mut pod: Waiting) {
        pod.attempts += 1;
        let place = Place::BackingOff(Instant::now() + pod.backoff());
        self.state().pods.insert(pod.uid.clone(), (pod, place));
        self.changed.notify_one();
    }

    /// The next pod to find a node for.
    pub(crate) async fn next(&self) -> Waiting {
        loop {
            let changed = self.changed.notified();
            let due = match self.take() {
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

    /// The first ready pod, or when the next one will be ready.
    fn take(&self) -> Result<Waiting, Option<Instant>> {
        let (now, mut state) = (Instant::now(), self.state());
        let wakings = state.wakings;
        let ready = state.pods.values().filter(|(_, place)| place.ready_at().is_none_or(|at| at <= now));
        let first = ready.map(|(pod, _)| pod).min_by_key(|pod| (-i64::from(pod.priority), pod.since));
        match first.map(|pod| pod.uid.clone()).and_then(|uid| state.pods.remove(&uid)) {
            Some((pod, _)) => Ok(Waiting { wakings, ..pod }),
            None => Err(state.pods.values().filter_map(|(_, place)| place.ready_at()).min()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Place {
    /// `None` means now.
    fn ready_at(&self) -> Option<Instant> {
        match self {
            Place::Ready => None,
            Place::BackingOff(at) => Some(*at),
            Place::Unschedulable { flush, .. } => Some(*flush),
        }
    }

    /// Ends the wait for an event, if it is this one; `None` is any.
    fn wake(&mut self, event: Option<Event>) {
        if let Place::Unschedulable { helped_by, ready_from, .. } = self
            && event.is_none_or(|event| helped_by.contains(&event))
        {
            *self = Place::BackingOff(*ready_from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, priority: i32) -> Waiting {
        Waiting::new("ns", name, name, priority)
    }

    #[tokio::test(start_paused = true)]
    async fn priority_then_time() {
        let queue = Queue::default();
        for (name, priority) in [("old", 0), ("high", 10), ("young", 0)] {
            queue.add(pod(name, priority));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        queue.add(pod("high", 10));
        let order = [queue.next().await.name, queue.next().await.name, queue.next().await.name];
        assert_eq!(order, ["high", "old", "young"]);
        assert!(queue.take().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_wakes_whom_it_may_help_after_the_backoff() {
        let (queue, start) = (Queue::default(), Instant::now());
        queue.add(pod("a", 0));
        let tried = queue.next().await;
        queue.unschedulable(tried, vec![Event::PodGone]);
        queue.wake(Event::Node);
        assert_eq!(queue.take().unwrap_err(), Some(start + FLUSH));
        queue.wake(Event::PodGone);
        let tried = queue.next().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF);
        queue.unschedulable(tried, vec![Event::PodGone]);
        queue.wake(Event::PodGone);
        queue.next().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF + 2 * INITIAL_BACKOFF);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_during_the_attempt_is_not_lost() {
        let (queue, start) = (Queue::default(), Instant::now());
        queue.add(pod("a", 0));
        let tried = queue.next().await;
        queue.wake(Event::Node);
        queue.unschedulable(tried, vec![Event::Node]);
        queue.next().await;
        assert_eq!(start.elapsed(), INITIAL_BACKOFF);
    }

    #[tokio::test(start_paused = true)]
    async fn without_events_it_is_tried_again_at_last() {
        let (queue, start) = (Queue::default(), Instant::now());
        queue.add(pod("a", 0));
        let tried = queue.next().await;
        queue.unschedulable(tried, vec![Event::Node]);
        queue.next().await;
        assert_eq!(start.elapsed(), FLUSH);
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_has_an_end_and_removal_is_final() {
        let queue = Queue::default();
        let mut waiting = pod("a", 0);
        waiting.attempts = 40;
        assert_eq!(waiting.backoff(), MAX_BACKOFF);
        queue.retry(waiting);
        queue.remove("a");
        assert_eq!(queue.take().unwrap_err(), None);
    }
}
