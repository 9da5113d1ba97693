//! The scheduling queue: which pod is tried next, and when a pod that fits nowhere is tried again.
//!
//! A pod is in one of three places: the active heap, the back-off heaps, or the unschedulable pool. It leaves the pool when
//! an event happens that, by the hints of the plug-ins that rejected it, may make it schedulable.
//!
//! # Guarantees
//! - A pod is in one place at a time, or in flight, or both in flight and nowhere else.
//! - An event that happens while a pod is in flight is not lost for it.
//! - A pod stays in the pool for a bounded time.

pub mod in_flight;
pub mod keyed_heap;
mod moves;
pub mod nominator;
pub mod unschedulable_pods;

use std::{
    cmp::Ordering,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use client::SharedInformer;

pub use self::moves::pod_change;
use self::{
    in_flight::InFlightPods, keyed_heap::KeyedHeap, moves::QueueingStrategy, nominator::PodNominator,
    unschedulable_pods::UnschedulablePods,
};
use crate::{
    framework::{
        Framework,
        cluster_event::{ClusterEvent, pod_update_events},
        extension_points::{NominatingInfo, Plugin},
        nominated_pods::NominatedPods,
        queued_pod::{QueueTime, QueuedPodInfo},
    },
    metrics::METRICS,
    views::pod_info::PodInfo,
};

/// Length of the windows by which pods with about the same back-off are ordered by priority.
const ORDERING_WINDOW: Duration = Duration::from_secs(1);

/// Durations of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueDurations {
    /// Back-off after the first failure.
    pub initial_backoff: Duration,
    /// The greatest back-off.
    pub max_backoff: Duration,
    /// The longest stay in the unschedulable pool.
    pub max_in_unschedulable: Duration,
}

impl Default for QueueDurations {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_in_unschedulable: Duration::from_secs(5 * 60),
        }
    }
}

/// Callbacks of the queue into the rest of the scheduler, which is created after it.
pub struct QueueBindings {
    /// The framework of every profile.
    pub frameworks: Vec<Arc<Framework>>,
    /// The pods of the cluster.
    pub pods: Option<SharedInformer<PodInfo>>,
}

/// The scheduling queue.
pub struct SchedulingQueue {
    state: Mutex<QueueState>,
    /// Signalled when a pod can be popped.
    available: Condvar,
    bindings: OnceLock<QueueBindings>,
    created: Instant,
    durations: QueueDurations,
    /// Whether pods in back-off are tried while the active heap is empty.
    pub pops_from_backoff: bool,
    /// Whether pods of a group are scheduled together; they are tried again after a back-off, whatever happens.
    pub schedules_pod_groups: bool,
}

struct QueueState {
    active: KeyedHeap,
    backoff: KeyedHeap,
    /// Pods whose last try ended with an error; they are not popped before their time.
    error_backoff: KeyedHeap,
    unschedulable: UnschedulablePods,
    in_flight: InFlightPods,
    nominator: PodNominator,
    is_closed: bool,
}

impl SchedulingQueue {
    /// Creates an empty queue; `sort` orders the active heap.
    pub fn new(sort: Arc<dyn Plugin>, durations: QueueDurations) -> Self {
        let compare = move |a: &QueuedPodInfo, b: &QueuedPodInfo| {
            sort.as_queue_sort().map_or(Ordering::Equal, |sort| sort.compare(a, b))
        };
        let compare: keyed_heap::ComparePods = Arc::new(compare);
        let by_time = move |a: &QueuedPodInfo, b: &QueuedPodInfo| {
            backoff_expiration(a, &durations).cmp(&backoff_expiration(b, &durations))
        };
        let (then, by_time) = (compare.clone(), Arc::new(by_time));
        let first = by_time.clone();
        let backoff: keyed_heap::ComparePods = Arc::new(move |a, b| first(a, b).then_with(|| then(a, b)));
        Self {
            state: Mutex::new(QueueState {
                active: KeyedHeap::new(compare),
                backoff: KeyedHeap::new(backoff),
                error_backoff: KeyedHeap::new(by_time),
                unschedulable: UnschedulablePods::default(),
                in_flight: InFlightPods::default(),
                nominator: PodNominator::default(),
                is_closed: false,
            }),
            available: Condvar::new(),
            bindings: OnceLock::new(),
            created: Instant::now(),
            durations,
            pops_from_backoff: true,
            schedules_pod_groups: false,
        }
    }

    /// Connects the queue with the rest of the scheduler, once.
    pub fn bind(&self, bindings: QueueBindings) {
        // A second call would be a bug; the first one counts.
        let _ = self.bindings.set(bindings);
    }

    /// Adds a new pod.
    pub fn add_pod(&self, pod: Arc<PodInfo>) {
        let entry = QueuedPodInfo::new(pod, self.now());
        let mut state = self.lock();
        self.move_to_active(&mut state, entry, "UnschedulablePodAdd");
        self.publish(&state);
    }

    /// Takes over the new state of a pod that waits, or adds it.
    pub fn update_pod(&self, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        let events = pod_update_events(old, new);
        let mut state = self.lock();
        let object = Arc::new(moves::pod_change(Some(old.clone()), Some(new.clone())));
        if state.in_flight.contains(&new.uid) {
            events.iter().for_each(|event| state.in_flight.add_event(*event, &object));
            return;
        }
        let QueueState { active, backoff, error_backoff, nominator, .. } = &mut *state;
        for heap in [active, backoff, error_backoff] {
            if let Some(mut entry) = heap.remove(&new.uid) {
                entry.pod = new.clone();
                heap.insert(entry);
                nominator.update(old, new);
                return;
            }
        }
        match state.unschedulable.remove(&new.uid) {
            Some(mut entry) => {
                entry.pod = new.clone();
                state.nominator.update(old, new);
                self.requeue_updated(&mut state, entry, &events, &object);
            }
            None => {
                let entry = QueuedPodInfo::new(new.clone(), self.now());
                self.move_to_active(&mut state, entry, "UnschedulablePodUpdate");
            }
        }
        self.publish(&state);
    }

    /// Removes a pod that was deleted or bound.
    pub fn delete_pod(&self, uid: &str) {
        let mut state = self.lock();
        state.nominator.remove(uid);
        let QueueState { active, backoff, error_backoff, unschedulable, .. } = &mut *state;
        let _ = active
            .remove(uid)
            .or_else(|| backoff.remove(uid))
            .or_else(|| error_backoff.remove(uid))
            .or_else(|| unschedulable.remove(uid));
        self.publish(&state);
    }

    /// Takes the next pod, waiting for one; `None` once the queue is closed.
    pub fn pop(&self) -> Option<QueuedPodInfo> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let next = state.active.pop().or_else(|| {
                let next = self.pops_from_backoff.then(|| state.backoff.pop())??;
                METRICS.queue_incoming("active", "PopFromBackoffQ");
                Some(next)
            });
            match next {
                Some(mut entry) => {
                    entry.attempts += 1;
                    if state.in_flight.add_pod(&entry.pod.uid) {
                        self.publish(&state);
                        return Some(entry);
                    }
                }
                None => state = self.available.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Takes a pod out of its turn, wherever it waits; `None` if it does not wait, or is gated.
    pub fn pop_pod(&self, uid: &str) -> Option<QueuedPodInfo> {
        let mut state = self.lock();
        if let Some(entry) = state.remove_waiting(uid) {
            self.move_to_active(&mut state, entry, "ForceActivate");
        }
        let mut entry = state.active.remove(uid)?;
        entry.attempts += 1;
        let is_new = state.in_flight.add_pod(&entry.pod.uid);
        self.publish(&state);
        is_new.then_some(entry)
    }

    /// Ends the flight of a pod that is not put back.
    pub fn done(&self, uid: &str) {
        self.lock().in_flight.remove_pod(uid);
    }

    /// Puts a pod back that could not be scheduled.
    pub fn add_unschedulable(&self, mut entry: QueuedPodInfo) {
        let mut state = self.lock();
        let events = state.in_flight.remove_pod(&entry.pod.uid);
        if state.contains(&entry.pod.uid) {
            return;
        }
        if entry.rejectors().next().is_none() {
            entry.consecutive_errors += 1;
        } else {
            entry.unschedulable_count += 1;
            entry.consecutive_errors = 0;
        }
        entry.timestamp = self.now();
        (entry.was_flushed, entry.flushed_at) = (false, QueueTime::ZERO);
        let strategy = self.strategy_for_flight(&entry, &events);
        self.requeue(&mut state, entry, strategy, "ScheduleAttemptFailure");
        self.publish(&state);
    }

    /// Tries pods at once, whatever they wait for.
    pub fn activate(&self, uids: &[Arc<str>]) {
        let mut state = self.lock();
        for uid in uids {
            match state.remove_waiting(uid) {
                Some(entry) => self.move_to_active(&mut state, entry, "ForceActivate"),
                None if state.in_flight.contains(uid) => {
                    let object = Arc::new(crate::framework::cluster_event::EventObject::Nothing);
                    state.in_flight.add_event(ClusterEvent::FORCE_ACTIVATE, &object);
                }
                None => {}
            }
        }
        self.publish(&state);
    }

    /// Moves pods whose back-off is over to the active heap.
    pub fn flush_backoff(&self) {
        let mut state = self.lock();
        let mut ready = Vec::new();
        let QueueState { backoff, error_backoff, .. } = &mut *state;
        for heap in [backoff, error_backoff] {
            while heap.peek().is_some_and(|entry| !self.is_backing_off(entry)) {
                ready.extend(heap.pop());
            }
        }
        for entry in ready {
            self.insert_active(&mut state, entry, "BackoffComplete");
        }
        self.publish(&state);
    }

    /// Nominates a pod, or ends its nomination.
    pub fn nominate_pod(&self, pod: &Arc<PodInfo>, nominating: &NominatingInfo) {
        let is_waiting = self.pods().is_none_or(|pods| {
            pods.get(&pod.class.namespace, &pod.name).is_some_and(|known| known.node_name.is_none())
        });
        let mut state = self.lock();
        match is_waiting {
            true => state.nominator.add(pod, nominating),
            false => state.nominator.remove(&pod.uid),
        }
    }

    /// Ends a pod's nomination.
    pub fn delete_nominated_pod(&self, uid: &str) {
        self.lock().nominator.remove(uid);
    }

    /// The nominated pods.
    pub fn nominated_pods(&self) -> Arc<NominatedPods> {
        self.lock().nominator.pods()
    }

    /// Ends [`SchedulingQueue::pop`].
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.available.notify_all();
    }

    /// Numbers of pods: active, in back-off, unschedulable, gated.
    #[cfg(test)]
    pub fn counts(&self) -> [usize; 4] {
        self.lock().counts()
    }

    /// The time that queue entries carry.
    pub fn now(&self) -> QueueTime {
        self.created.elapsed()
    }

    fn pods(&self) -> Option<&SharedInformer<PodInfo>> {
        self.bindings.get()?.pods.as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the sizes and wakes the scheduling loop if there is something to pop.
    fn publish(&self, state: &QueueState) {
        METRICS.set_pending_pods(state.counts());
        if state.active.len() > 0 || self.pops_from_backoff && state.backoff.len() > 0 {
            self.available.notify_one();
        }
    }

    fn is_backing_off(&self, entry: &QueuedPodInfo) -> bool {
        backoff_expiration(entry, &self.durations).is_some_and(|end| end >= align_to_window(self.now()))
    }

    fn requeue(&self, state: &mut QueueState, entry: QueuedPodInfo, strategy: QueueingStrategy, event: &str) {
        match strategy {
            QueueingStrategy::Skip => {
                METRICS.queue_incoming("unschedulable", event);
                state.unschedulable.insert(entry);
            }
            QueueingStrategy::AfterBackoff if self.is_backing_off(&entry) => self.move_to_backoff(state, entry, event),
            _ => self.move_to_active(state, entry, event),
        }
    }
}

impl QueueState {
    /// Removes a pod that is in back-off or in the unschedulable pool.
    fn remove_waiting(&mut self, uid: &str) -> Option<QueuedPodInfo> {
        let waiting = self.unschedulable.remove(uid).or_else(|| self.backoff.remove(uid));
        waiting.or_else(|| self.error_backoff.remove(uid))
    }

    fn contains(&self, uid: &str) -> bool {
        [&self.active, &self.backoff, &self.error_backoff].iter().any(|heap| heap.get(uid).is_some())
            || self.unschedulable.get(uid).is_some()
    }

    fn counts(&self) -> [usize; 4] {
        let (unschedulable, gated) = self.unschedulable.counts();
        [self.active.len(), self.backoff.len() + self.error_backoff.len(), unschedulable, gated]
    }
}

/// Rounds down to the start of an ordering window.
fn align_to_window(time: QueueTime) -> QueueTime {
    Duration::from_secs(time.as_secs() / ORDERING_WINDOW.as_secs() * ORDERING_WINDOW.as_secs())
}

/// Returns the end of a pod's back-off; `None` if it has none.
fn backoff_expiration(entry: &QueuedPodInfo, durations: &QueueDurations) -> Option<QueueTime> {
    let count = if entry.consecutive_errors > 0 { entry.consecutive_errors } else { entry.unschedulable_count };
    if count == 0 || durations.max_backoff.is_zero() {
        return None;
    }
    let factor = 1u32.checked_shl(count - 1).unwrap_or(u32::MAX);
    let backoff = durations.initial_backoff.saturating_mul(factor).min(durations.max_backoff);
    Some(align_to_window(entry.timestamp + backoff))
}

#[cfg(test)]
mod tests;
