//! A priority level: its seats, and the requests that execute and wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    config::{LevelConfig, Queuing},
    queues::Queues,
};

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// All seats are taken, and the level does not queue.
    NoSeats,
    /// The queue is full.
    QueueFull,
    /// The request timed out in the queue.
    TooLong,
}

/// A priority level.
pub struct Level {
    name: Arc<str>,
    inner: Mutex<Inner>,
}

struct Inner {
    exempt: bool,
    /// Nominal seats.
    nominal: usize,
    /// Seats that are never lent.
    lower: usize,
    /// Seats including the borrowing limit.
    upper: usize,
    /// Current seats. More may be taken for a while after the limit was lowered.
    limit: usize,
    /// Taken seats.
    taken: usize,
    /// Peak of taken and requested seats since the last lending.
    peak: usize,
    /// Smoothed demand.
    expected: f64,
    queuing: Option<Queuing>,
    queues: Option<Queues<Waiter>>,
    counts: BTreeMap<Arc<str>, Counts>,
}

struct Waiter {
    width: usize,
    schema: Arc<str>,
    go: oneshot::Sender<Seats>,
}

/// Metrics of a flow schema.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Dispatched requests.
    pub dispatched: u64,
    /// Executing requests.
    pub executing: usize,
    /// Their seats.
    pub seats: usize,
    /// Rejected requests by reason.
    pub refused: BTreeMap<Refused, u64>,
    /// Waiting requests.
    pub waiting: usize,
}

/// A snapshot of a level, for metrics.
pub struct View {
    /// Name.
    pub name: Arc<str>,
    /// Nominal seats.
    pub nominal: usize,
    /// Seats that are never lent.
    pub lower: usize,
    /// Seats including the borrowing limit.
    pub upper: usize,
    /// Current seats.
    pub limit: usize,
    /// Metrics by flow schema.
    pub counts: BTreeMap<Arc<str>, Counts>,
}

/// Seats that are held until drop.
pub struct Seats {
    level: Arc<Level>,
    width: usize,
    schema: Arc<str>,
}

impl Drop for Seats {
    fn drop(&mut self) {
        let mut inner = self.level.lock();
        inner.taken -= self.width;
        let counts = inner.counts.entry(self.schema.clone()).or_default();
        counts.executing -= 1;
        counts.seats -= self.width;
        Level::dispatch(&self.level, inner);
    }
}

impl Level {
    /// A level without seats, until it is configured.
    pub fn new(name: &str) -> Self {
        let inner = Inner {
            exempt: false,
            nominal: 0,
            lower: 0,
            upper: 0,
            limit: 0,
            taken: 0,
            peak: 0,
            expected: 0.0,
            queuing: None,
            queues: None,
            counts: BTreeMap::new(),
        };
        Self { name: name.into(), inner: Mutex::new(inner) }
    }

    /// The name of the level.
    pub fn name(&self) -> Arc<str> {
        self.name.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a configuration. Requests in queues of another shape are admitted at once.
    pub fn configure(self: &Arc<Self>, config: &LevelConfig, nominal: usize, total: usize) {
        let mut inner = self.lock();
        let percent = |share: u64| (nominal as f64 * share as f64 / 100.0).round() as usize;
        inner.exempt = config.exempt;
        inner.lower = nominal - percent(config.lendable).min(nominal);
        inner.upper = nominal + config.borrows.map_or(total, percent);
        if inner.nominal != nominal {
            inner.limit = nominal;
            inner.nominal = nominal;
        }
        if inner.queuing != config.queuing {
            inner.queuing = config.queuing;
            let old = std::mem::replace(&mut inner.queues, config.queuing.map(Queues::new));
            if let Some(mut old) = old {
                // Permits of cancelled waiters take the lock when they drop, so they drop outside of it.
                let gone: Vec<Seats> = std::iter::from_fn(|| old.pop(|_| true))
                    .filter_map(|waiter| self.seat(&mut inner, waiter))
                    .collect();
                drop(inner);
                drop(gone);
                inner = self.lock();
            }
        }
        Self::dispatch(self, inner);
    }

    /// Takes seats, waiting for at most `wait`.
    pub async fn enter(
        self: &Arc<Self>,
        schema: &Arc<str>,
        hash: u64,
        width: usize,
        patience: Duration,
    ) -> Result<Seats, Refused> {
        let waiting = {
            let mut inner = self.lock();
            let width = if inner.exempt { width } else { width.min(inner.limit.max(1)) };
            if inner.exempt || (inner.fits(width) && inner.queues.as_ref().is_none_or(Queues::is_empty)) {
                return Ok(self.sit(&mut inner, schema.clone(), width));
            }
            self.wait(&mut inner, schema, hash, width)?
        };
        match tokio::time::timeout(patience, waiting).await {
            Ok(Ok(seats)) => Ok(seats),
            Ok(Err(_)) | Err(_) => {
                let mut inner = self.lock();
                let counts = inner.counts.entry(schema.clone()).or_default();
                *counts.refused.entry(Refused::TooLong).or_default() += 1;
                Err(Refused::TooLong)
            }
        }
    }

    fn wait(
        &self,
        inner: &mut Inner,
        schema: &Arc<str>,
        hash: u64,
        width: usize,
    ) -> Result<oneshot::Receiver<Seats>, Refused> {
        let (go, waiting) = oneshot::channel();
        let waiter = Waiter { width, schema: schema.clone(), go };
        let refused = match &mut inner.queues {
            None => Some(Refused::NoSeats),
            Some(queues) => {
                let pushed = queues.push(hash, width, waiter, |waiter| waiter.go.is_closed());
                pushed.err().map(|_| Refused::QueueFull)
            }
        };
        if let Some(refused) = refused {
            let counts = inner.counts.entry(schema.clone()).or_default();
            *counts.refused.entry(refused).or_default() += 1;
            return Err(refused);
        }
        inner.note_demand();
        Ok(waiting)
    }

    fn sit(self: &Arc<Self>, inner: &mut Inner, schema: Arc<str>, width: usize) -> Seats {
        inner.taken += width;
        inner.note_demand();
        let counts = inner.counts.entry(schema.clone()).or_default();
        counts.dispatched += 1;
        counts.executing += 1;
        counts.seats += width;
        Seats { level: self.clone(), width, schema }
    }

    /// Grants seats to a waiter; those of a cancelled waiter return shortly.
    fn seat(self: &Arc<Self>, inner: &mut Inner, waiter: Waiter) -> Option<Seats> {
        let seats = self.sit(inner, waiter.schema, waiter.width);
        waiter.go.send(seats).err()
    }

    /// Admits waiters that fit. Permits of cancelled waiters drop outside of the lock and dispatch again.
    fn dispatch(this: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) {
        let mut unwanted = Vec::new();
        loop {
            let (taken, limit) = (inner.taken, inner.limit);
            let fits = |waiter: &Waiter| waiter.go.is_closed() || taken == 0 || taken + waiter.width <= limit;
            let Some(waiter) = inner.queues.as_mut().and_then(|queues| queues.pop(fits)) else { break };
            if !waiter.go.is_closed() {
                unwanted.extend(this.seat(&mut inner, waiter));
            }
        }
        drop(inner);
        drop(unwanted);
    }

    /// Returns the demand for lending and resets the peak.
    pub fn demand(&self) -> Demand {
        let mut inner = self.lock();
        let peak = std::mem::replace(&mut inner.peak, 0);
        inner.note_demand();
        // Demand decays slowly.
        inner.expected = (peak as f64).max(0.977 * inner.expected + 0.023 * peak as f64);
        Demand { lower: inner.lower, upper: inner.upper, wanted: inner.expected, exempt: inner.exempt }
    }

    /// Sets the current seats.
    pub fn set_limit(self: &Arc<Self>, limit: usize) {
        let mut inner = self.lock();
        inner.limit = limit;
        Self::dispatch(self, inner);
    }

    /// Returns a snapshot.
    pub fn view(&self) -> View {
        let inner = self.lock();
        let mut counts = inner.counts.clone();
        for waiter in inner.queues.iter().flat_map(Queues::waiters).filter(|waiter| !waiter.go.is_closed()) {
            counts.entry(waiter.schema.clone()).or_default().waiting += 1;
        }
        View {
            name: self.name.clone(),
            nominal: inner.nominal,
            lower: inner.lower,
            upper: inner.upper,
            limit: inner.limit,
            counts,
        }
    }
}

/// The demand of a level.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Minimum seats.
    pub lower: usize,
    /// Maximum seats.
    pub upper: usize,
    /// Expected demand.
    pub wanted: f64,
    /// Exempt levels take what they need.
    pub exempt: bool,
}

impl Inner {
    fn fits(&self, width: usize) -> bool {
        self.taken == 0 && self.limit > 0 || self.taken + width <= self.limit
    }

    fn note_demand(&mut self) {
        let waiting = self.queues.as_ref().map_or(0, Queues::width);
        self.peak = self.peak.max(self.taken + waiting);
    }
}
