//! The work queue of every loop: keys wait once, are worked on once at a time, and come back later after a failure.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt::{Debug, Display},
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::FutureExt;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::delay::Backoff;

/// A deduplicating, rate-limited queue. Cheap to clone.
///
/// A key added while it waits is not added again; added while it is being worked on, it comes again after `done`.
pub struct Queue<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    state: Mutex<State<K>>,
    ready: Notify,
}

struct State<K> {
    /// What `next` hands out. Every key of it is in `dirty` and not in `processing`.
    waiting: VecDeque<K>,
    /// Keys that need work, whether they wait or will wait again after the work under way.
    dirty: HashSet<K>,
    /// Keys handed out and not yet given back.
    processing: HashSet<K>,
    /// Keys to be added at a time, each once, at the earliest time that was asked for.
    delayed: HashMap<K, (Instant, AbortHandle)>,
    backoff: Backoff<K>,
}

/// What [`Queue::run`] does with a key after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing: the next change brings it back.
    No,
    /// It comes again after a time.
    After(Duration),
    /// It comes again after its back-off: an expected failure, such as a conflict, that is not worth a log line.
    Retry,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Queue<K> {
    /// An empty queue with upstream's back-off: 5 ms doubling up to 1000 s per key.
    pub fn new() -> Self {
        let state = State {
            waiting: VecDeque::new(),
            dirty: HashSet::new(),
            processing: HashSet::new(),
            delayed: HashMap::new(),
            backoff: Backoff::default(),
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), ready: Notify::new() }) }
    }

    /// Adds a key now.
    pub fn add(&self, key: K) {
        let mut state = self.state();
        if !state.dirty.insert(key.clone()) || state.processing.contains(&key) {
            return;
        }
        state.waiting.push_back(key);
        self.shared.ready.notify_one();
    }

    /// Adds a key after a delay. Asked for more than once, the earliest time holds.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let due = Instant::now() + delay;
        let mut state = self.state();
        match state.delayed.get(&key) {
            Some((earlier, _)) if *earlier <= due => return,
            Some((_, timer)) => timer.abort(),
            None => {}
        }
        let timer = tokio::spawn(wake(Arc::downgrade(&self.shared), key.clone(), due)).abort_handle();
        state.delayed.insert(key, (due, timer));
    }

    /// Adds a key after its back-off, which grows with every call until [`Queue::forget`].
    pub fn retry(&self, key: K) {
        let delay = self.state().backoff.next(key.clone());
        self.add_after(key, delay);
    }

    /// Resets a key's back-off.
    pub fn forget(&self, key: &K) {
        self.state().backoff.forget(key);
    }

    /// The next key to work on; it must be given back with [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            let ready = self.shared.ready.notified();
            if let Some(key) = self.take() {
                return key;
            }
            ready.await;
        }
    }

    /// Says that the work on a key ended.
    pub fn done(&self, key: &K) {
        let mut state = self.state();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.waiting.push_back(key.clone());
            self.shared.ready.notify_one();
        }
    }

    /// How many keys wait now.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Works on keys with `workers` tasks until `shutdown`; work under way is finished. A failure, even a panic, is
    /// logged and the key comes again after its back-off.
    pub async fn run<F, Fut, E>(&self, workers: usize, shutdown: CancellationToken, sync: F)
    where
        K: Debug,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Requeue, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let sync = Arc::new(sync);
        let workers: Vec<_> =
            (0..workers).map(|_| tokio::spawn(self.clone().work(shutdown.clone(), sync.clone()))).collect();
        futures::future::join_all(workers).await;
    }

    async fn work<F, Fut, E>(self, shutdown: CancellationToken, sync: Arc<F>)
    where
        K: Debug,
        F: Fn(K) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Requeue, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        while let Some(key) = shutdown.run_until_cancelled(self.next()).await {
            match AssertUnwindSafe(sync(key.clone())).catch_unwind().await {
                Ok(Ok(Requeue::No)) => self.forget(&key),
                Ok(Ok(Requeue::After(delay))) => {
                    self.forget(&key);
                    self.add_after(key.clone(), delay);
                }
                Ok(Ok(Requeue::Retry)) => self.retry(key.clone()),
                Ok(Err(error)) => {
                    tracing::warn!(?key, %error, "sync failed, trying again");
                    self.retry(key.clone());
                }
                Err(_) => {
                    tracing::error!(?key, "sync panicked, trying again");
                    self.retry(key.clone());
                }
            }
            self.done(&key);
        }
    }

    fn take(&self) -> Option<K> {
        let mut state = self.state();
        let key = state.waiting.pop_front()?;
        state.dirty.remove(&key);
        state.processing.insert(key.clone());
        Some(key)
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.shared.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// The timer of one delayed key. It does not keep a queue alive that nobody else holds.
async fn wake<K: Clone + Eq + Hash + Send + Sync + 'static>(queue: std::sync::Weak<Shared<K>>, key: K, due: Instant) {
    tokio::time::sleep_until(due).await;
    let Some(shared) = queue.upgrade() else { return };
    let queue = Queue { shared };
    queue.state().delayed.remove(&key);
    queue.add(key);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_key_waits_once() {
        let queue = Queue::new();
        ["a", "b", "a"].into_iter().for_each(|key| queue.add(key));
        assert_eq!((queue.next().await, queue.next().await, queue.len()), ("a", "b", 0));
    }

    #[tokio::test]
    async fn a_key_added_during_its_work_comes_again_after_done() {
        let queue = Queue::new();
        queue.add("a");
        let key = queue.next().await;
        queue.add("a");
        assert!(queue.is_empty());
        queue.done(&key);
        assert_eq!(queue.next().await, "a");
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_delay_holds() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(60));
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(30));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 5);
        queue.done(&"a");
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn back_off_doubles_until_forgotten() {
        let queue = Queue::new();
        let mut waited = Vec::new();
        for _ in 0..3 {
            let start = Instant::now();
            queue.retry("a");
            queue.done(&queue.next().await);
            waited.push(start.elapsed().as_millis());
        }
        assert_eq!(waited, [5, 10, 20]);
        queue.forget(&"a");
        assert_eq!(queue.state().backoff.next("a"), Duration::from_millis(5));
        let longest = (0..40).map(|_| queue.state().backoff.next("a")).max();
        assert_eq!(longest, Some(Duration::from_secs(1000)));
    }

    #[tokio::test(start_paused = true)]
    async fn run_retries_failures_and_survives_panics() {
        let (queue, shutdown, calls) = (Queue::new(), CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        queue.add("a");
        let (counter, stop) = (calls.clone(), shutdown.clone());
        let run = queue.run(2, shutdown, move |_| {
            let (call, stop) = (counter.fetch_add(1, Ordering::SeqCst), stop.clone());
            async move {
                match call {
                    0 => Err("refused"),
                    1 => panic!("a bug"),
                    2 => Ok(Requeue::After(Duration::from_secs(1))),
                    _ => {
                        stop.cancel();
                        Ok(Requeue::No)
                    }
                }
            }
        });
        run.await;
        assert_eq!(calls.load(Ordering::SeqCst), 4);
    }
}
