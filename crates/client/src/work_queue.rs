//! The work queue of controllers: each key is queued once, processed by one worker at a time, and retried with
//! back-off.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt::{self, Debug, Display},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use panics::contain_panic;

use crate::{
    queue_metrics::QueueMetrics,
    rate_limiter::{BackoffBounds, ItemBackoff},
};

/// A deduplicating, rate-limited queue. Cheap to clone.
///
/// A key added while queued is not added again; added while it is processed, it is queued again after `done`.
pub struct WorkQueue<K> {
    shared: Arc<WorkQueueShared<K>>,
}

struct WorkQueueShared<K> {
    /// The controller's name, for logs and metrics.
    name: &'static str,
    state: Mutex<WorkQueueState<K>>,
    ready: Notify,
    /// Wakes the timer when an earlier delay was added.
    timer_changed: Notify,
    metrics: Arc<QueueMetrics>,
}

struct WorkQueueState<K> {
    /// Keys for `next_key`. Every one is in `dirty` and not in `processing`.
    waiting: VecDeque<K>,
    /// Keys that need processing, whether queued or to be queued after the current sync, and since when.
    dirty: HashMap<K, Instant>,
    /// Keys handed out and not yet `done`.
    processing: HashSet<K>,
    /// Keys to be added later, each once at the earliest requested time.
    delayed: HashMap<K, DelayOrder>,
    /// The same keys in the order of their time.
    timers: BTreeMap<DelayOrder, K>,
    /// Number of delays so far, which makes their order unique.
    delays: u64,
    /// Whether the task that adds delayed keys was started.
    has_timer: bool,
    backoff: ItemBackoff<K>,
}

/// The time at which a key is due, and the number of its delay.
type DelayOrder = (Instant, u64);

/// Requeue behaviour of a key after a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequeueAction {
    /// Not requeued; the next event adds it again.
    AwaitChange,
    /// Requeued after a delay.
    After(Duration),
    /// Requeued with back-off and without a log line: an expected failure such as a conflict.
    Backoff,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> WorkQueue<K> {
    /// Creates an empty queue of the controller `name`, with upstream's back-off: 5 ms doubling up to 1000 s per key.
    pub fn new(name: &'static str) -> Self {
        Self::with_backoff(name, BackoffBounds::DEFAULT)
    }

    /// Creates an empty queue of the controller `name` with another back-off.
    pub fn with_backoff(name: &'static str, bounds: BackoffBounds) -> Self {
        let state = WorkQueueState {
            waiting: VecDeque::new(),
            dirty: HashMap::new(),
            processing: HashSet::new(),
            delayed: HashMap::new(),
            timers: BTreeMap::new(),
            delays: 0,
            has_timer: false,
            backoff: ItemBackoff::new(bounds),
        };
        let shared = WorkQueueShared {
            name,
            state: Mutex::new(state),
            ready: Notify::new(),
            timer_changed: Notify::new(),
            metrics: QueueMetrics::for_queue(name),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Adds a key.
    pub fn add(&self, key: K) {
        let mut state = self.lock_state();
        if state.dirty.contains_key(&key) {
            return;
        }
        state.dirty.insert(key.clone(), Instant::now());
        self.shared.metrics.adds.fetch_add(1, Ordering::Relaxed);
        if !state.processing.contains(&key) {
            self.push_waiting(&mut state, key);
        }
    }

    fn push_waiting(&self, state: &mut WorkQueueState<K>, key: K) {
        state.waiting.push_back(key);
        self.shared.metrics.depth.fetch_add(1, Ordering::Relaxed);
        self.shared.ready.notify_one();
    }

    /// Adds a key after a delay; of several pending delays the earliest holds.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let Some(due) = Instant::now().checked_add(delay) else { return };
        let mut state = self.lock_state();
        match state.delayed.get(&key).copied() {
            Some((earlier, _)) if earlier <= due => return,
            Some(later) => drop(state.timers.remove(&later)),
            None => {}
        }
        let order = (due, state.delays);
        state.delays += 1;
        state.delayed.insert(key.clone(), order);
        state.timers.insert(order, key);
        if !state.has_timer {
            state.has_timer = true;
            tokio::spawn(add_delayed_keys(Arc::downgrade(&self.shared)));
        } else if state.timers.first_key_value().is_some_and(|(first, _)| *first == order) {
            self.shared.timer_changed.notify_one();
        }
    }

    /// Adds a key after its back-off, which grows with every call until [`WorkQueue::forget`].
    pub fn add_rate_limited(&self, key: K) {
        let delay = self.lock_state().backoff.next_delay(key.clone());
        self.shared.metrics.retries.fetch_add(1, Ordering::Relaxed);
        self.add_after(key, delay);
    }

    /// Resets a key's back-off.
    pub fn forget(&self, key: &K) {
        self.lock_state().backoff.forget(key);
    }

    /// Returns the next key, which must be given back with [`WorkQueue::done`].
    pub async fn next_key(&self) -> K {
        self.next_ready().await.0
    }

    /// Returns the next key and the time that it waited.
    async fn next_ready(&self) -> (K, Duration) {
        loop {
            let ready = self.shared.ready.notified();
            if let Some(taken) = self.take_ready() {
                return taken;
            }
            ready.await;
        }
    }

    /// Marks a key as processed.
    pub fn done(&self, key: &K) {
        let mut state = self.lock_state();
        state.processing.remove(key);
        if state.dirty.contains_key(key) {
            self.push_waiting(&mut state, key.clone());
        }
    }

    /// Returns the number of queued keys.
    pub fn len(&self) -> usize {
        self.lock_state().waiting.len()
    }

    /// Whether no key is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Processes keys with `workers` tasks until `shutdown`, finishing syncs in progress. A failure or panic is logged
    /// and the key is requeued with back-off.
    pub async fn run_workers<F, Fut, E>(&self, workers: usize, shutdown: CancellationToken, sync: F)
    where
        K: Debug,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RequeueAction, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let sync = Arc::new(sync);
        let workers: Vec<_> =
            (0..workers).map(|_| tokio::spawn(self.clone().run_worker(shutdown.clone(), sync.clone()))).collect();
        futures::future::join_all(workers).await;
    }

    async fn run_worker<F, Fut, E>(self, shutdown: CancellationToken, sync: Arc<F>)
    where
        K: Debug,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<RequeueAction, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        while let Some((key, waited)) = shutdown.run_until_cancelled(self.next_ready()).await {
            let run = self.shared.metrics.start_sync(waited);
            let span = tracing::debug_span!("sync", controller = self.shared.name, ?key);
            self.process_key(&key, sync.as_ref()).instrument(span).await;
            self.shared.metrics.finish_sync(run);
            self.done(&key);
        }
    }

    /// Syncs one key and requeues it according to the result.
    async fn process_key<F, Fut, E>(&self, key: &K, sync: &F)
    where
        K: Debug,
        F: Fn(K) -> Fut,
        Fut: Future<Output = Result<RequeueAction, E>>,
        E: Display,
    {
        let (controller, started) = (self.shared.name, Instant::now());
        let result = contain_panic(controller, KeyText(key), || sync(key.clone())).await;
        tracing::debug!(controller, ?key, duration = ?started.elapsed(), "synced");
        match result {
            Ok(Ok(RequeueAction::AwaitChange)) => self.forget(key),
            Ok(Ok(RequeueAction::After(delay))) => {
                self.forget(key);
                self.add_after(key.clone(), delay);
            }
            Ok(Ok(RequeueAction::Backoff)) | Err(_) => self.add_rate_limited(key.clone()),
            Ok(Err(error)) => {
                tracing::warn!(controller, ?key, %error, "sync failed, requeued with back-off");
                self.add_rate_limited(key.clone());
            }
        }
    }

    fn take_ready(&self) -> Option<(K, Duration)> {
        let mut state = self.lock_state();
        let key = state.waiting.pop_front()?;
        self.shared.metrics.depth.fetch_sub(1, Ordering::Relaxed);
        let waited = state.dirty.remove(&key).map_or(Duration::ZERO, |added| added.elapsed());
        state.processing.insert(key.clone());
        Some((key, waited))
    }

    /// Adds the delayed keys that are due; returns the time of the next one.
    fn add_due_keys(&self) -> Option<Instant> {
        let mut due = Vec::new();
        let next = {
            let mut state = self.lock_state();
            let now = Instant::now();
            while let Some(entry) = state.timers.first_entry().filter(|entry| entry.key().0 <= now) {
                due.push(entry.remove());
            }
            for key in &due {
                state.delayed.remove(key);
            }
            state.timers.first_key_value().map(|((next, _), _)| *next)
        };
        due.into_iter().for_each(|key| self.add(key));
        next
    }

    fn lock_state(&self) -> MutexGuard<'_, WorkQueueState<K>> {
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A key as shown in logs.
struct KeyText<'a, K>(&'a K);

impl<K: Debug> Display for KeyText<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Adds delayed keys when they are due, until the queue is dropped.
async fn add_delayed_keys<K: Clone + Eq + Hash + Send + Sync + 'static>(queue: Weak<WorkQueueShared<K>>) {
    /// The longest sleep, after which a dropped queue is noticed.
    const LONGEST_SLEEP: Duration = Duration::from_secs(60);
    while let Some(shared) = queue.upgrade() {
        let queue = WorkQueue { shared };
        let latest = Instant::now() + LONGEST_SLEEP;
        let wake = queue.add_due_keys().map_or(latest, |due| due.min(latest));
        // An earlier delay ends the sleep.
        let _ = tokio::time::timeout_at(wake, queue.shared.timer_changed.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn queued_key_is_not_added_twice() {
        let queue = WorkQueue::new("test");
        ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
        assert_eq!((queue.next_key().await, queue.next_key().await, queue.len()), ("a", "b", 0));
    }

    #[tokio::test]
    async fn key_added_while_processed_is_requeued_after_done() {
        let queue = WorkQueue::new("test");
        queue.add("a");
        let key = queue.next_key().await;
        queue.add("a");
        assert!(queue.is_empty());
        queue.done(&key);
        assert_eq!(queue.next_key().await, "a");
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn earliest_delay_wins() {
        let queue = WorkQueue::new("test");
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(30));
        assert_eq!(queue.next_key().await, "a");
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_until_forgotten() {
        let queue = WorkQueue::new("test");
        let mut waited = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            queue.add_rate_limited("a");
            queue.done(&queue.next_key().await);
            waited.push(start.elapsed().as_millis());
        }
        assert_eq!(waited, [5, 10, 20]);
        queue.forget(&"a");
        assert_eq!(queue.lock_state().backoff.next_delay("a"), Duration::from_millis(5));
        let longest = (0..40).map(|_| queue.lock_state().backoff.next_delay("a")).max();
        assert_eq!(longest, Some(Duration::from_secs(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn workers_retry_failures_and_survive_panics() {
        let (queue, shutdown, calls) =
            (WorkQueue::new("test"), CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        queue.add("a");
        let (counter, stop) = (calls.clone(), shutdown.clone());
        let run = queue.run_workers(2, shutdown, move |_| {
            let (call, stop) = (counter.fetch_add(1, Ordering::SeqCst), stop.clone());
            async move {
                match call {
                    0 => Err("refused"),
                    1 => panic!("a bug"),
                    2 => Ok(RequeueAction::After(Duration::from_secs(1))),
                    _ => {
                        stop.cancel();
                        Ok(RequeueAction::AwaitChange)
                    }
                }
            }
        });
        run.await;
        assert_eq!(calls.load(Ordering::SeqCst), 4);
        assert!(panics::panic_count("test") >= 1);
    }
}
