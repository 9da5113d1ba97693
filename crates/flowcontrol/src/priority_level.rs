//! A priority level: its seats, and the requests that execute and wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    config::{PriorityLevelConfig, QueuingConfig},
    queue_set::QueueSet,
};

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectReason {
    /// All seats are taken, and the level does not queue.
    NoSeats,
    /// The queue is full.
    QueueFull,
    /// The request timed out in the queue.
    TooLong,
}

/// A priority level.
pub struct PriorityLevel {
    name: Arc<str>,
    inner: Mutex<LevelState>,
}

struct LevelState {
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
    queuing: Option<QueuingConfig>,
    queues: Option<QueueSet<QueuedRequest>>,
    counts: BTreeMap<Arc<str>, FlowSchemaCounts>,
}

struct QueuedRequest {
    width: usize,
    schema: Arc<str>,
    go: oneshot::Sender<HeldSeats>,
}

/// Metrics of a flow schema.
#[derive(Clone, Debug, Default)]
pub struct FlowSchemaCounts {
    /// Dispatched requests.
    pub dispatched: u64,
    /// Executing requests.
    pub executing: usize,
    /// Their seats.
    pub seats: usize,
    /// Rejected requests by reason.
    pub refused: BTreeMap<RejectReason, u64>,
    /// Waiting requests.
    pub waiting: usize,
}

/// A snapshot of a level, for metrics.
pub struct LevelSnapshot {
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
    pub counts: BTreeMap<Arc<str>, FlowSchemaCounts>,
}

/// Seats that are held until drop.
pub struct HeldSeats {
    level: Arc<PriorityLevel>,
    width: usize,
    schema: Arc<str>,
}

impl Drop for HeldSeats {
    fn drop(&mut self) {
        let mut inner = self.level.lock_state();
        inner.taken -= self.width;
        let counts = inner.counts.entry(self.schema.clone()).or_default();
        counts.executing -= 1;
        counts.seats -= self.width;
        PriorityLevel::dispatch_requests(&self.level, inner);
    }
}

impl PriorityLevel {
    /// A level without seats, until it is configured.
    pub fn new(name: &str) -> Self {
        let inner = LevelState {
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

    fn lock_state(&self) -> MutexGuard<'_, LevelState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a configuration. Requests in queues of another shape are admitted at once.
    pub fn apply_config(self: &Arc<Self>, config: &PriorityLevelConfig, nominal: usize, total: usize) {
        let mut inner = self.lock_state();
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
            let old = std::mem::replace(&mut inner.queues, config.queuing.map(QueueSet::new));
            if let Some(mut old) = old {
                // Permits of cancelled waiters take the lock when they drop, so they drop outside of it.
                let gone: Vec<HeldSeats> = std::iter::from_fn(|| old.dequeue_request(|_| true))
                    .filter_map(|waiter| self.grant_seats(&mut inner, waiter))
                    .collect();
                drop(inner);
                drop(gone);
                inner = self.lock_state();
            }
        }
        Self::dispatch_requests(self, inner);
    }

    /// Takes seats, waiting for at most `wait`.
    pub async fn start_request(
        self: &Arc<Self>,
        schema: &Arc<str>,
        hash: u64,
        width: usize,
        queue_wait: Duration,
    ) -> Result<HeldSeats, RejectReason> {
        let waiting = {
            let mut inner = self.lock_state();
            let width = if inner.exempt { width } else { width.min(inner.limit.max(1)) };
            if inner.exempt
                || (inner.can_accommodate_seats(width) && inner.queues.as_ref().is_none_or(QueueSet::is_empty))
            {
                return Ok(self.take_seats(&mut inner, schema.clone(), width));
            }
            self.enqueue_request(&mut inner, schema, hash, width)?
        };
        match tokio::time::timeout(queue_wait, waiting).await {
            Ok(Ok(seats)) => Ok(seats),
            Ok(Err(_)) | Err(_) => {
                let mut inner = self.lock_state();
                let counts = inner.counts.entry(schema.clone()).or_default();
                *counts.refused.entry(RejectReason::TooLong).or_default() += 1;
                Err(RejectReason::TooLong)
            }
        }
    }

    fn enqueue_request(
        &self,
        inner: &mut LevelState,
        schema: &Arc<str>,
        hash: u64,
        width: usize,
    ) -> Result<oneshot::Receiver<HeldSeats>, RejectReason> {
        let (go, waiting) = oneshot::channel();
        let waiter = QueuedRequest { width, schema: schema.clone(), go };
        let refused = match &mut inner.queues {
            None => Some(RejectReason::NoSeats),
            Some(queues) => {
                let pushed = queues.enqueue_request(hash, width, waiter, |waiter| waiter.go.is_closed());
                pushed.err().map(|_| RejectReason::QueueFull)
            }
        };
        if let Some(refused) = refused {
            let counts = inner.counts.entry(schema.clone()).or_default();
            *counts.refused.entry(refused).or_default() += 1;
            return Err(refused);
        }
        inner.record_demand();
        Ok(waiting)
    }

    fn take_seats(self: &Arc<Self>, inner: &mut LevelState, schema: Arc<str>, width: usize) -> HeldSeats {
        inner.taken += width;
        inner.record_demand();
        let counts = inner.counts.entry(schema.clone()).or_default();
        counts.dispatched += 1;
        counts.executing += 1;
        counts.seats += width;
        HeldSeats { level: self.clone(), width, schema }
    }

    /// Grants seats to a waiter; those of a cancelled waiter return shortly.
    fn grant_seats(self: &Arc<Self>, inner: &mut LevelState, waiter: QueuedRequest) -> Option<HeldSeats> {
        let seats = self.take_seats(inner, waiter.schema, waiter.width);
        waiter.go.send(seats).err()
    }

    /// Admits waiters that fit. Permits of cancelled waiters drop outside of the lock and dispatch again.
    fn dispatch_requests(this: &Arc<Self>, mut inner: MutexGuard<'_, LevelState>) {
        let mut unwanted = Vec::new();
        loop {
            let (taken, limit) = (inner.taken, inner.limit);
            let fits = |waiter: &QueuedRequest| waiter.go.is_closed() || taken == 0 || taken + waiter.width <= limit;
            let Some(waiter) = inner.queues.as_mut().and_then(|queues| queues.dequeue_request(fits)) else { break };
            if !waiter.go.is_closed() {
                unwanted.extend(this.grant_seats(&mut inner, waiter));
            }
        }
        drop(inner);
        drop(unwanted);
    }

    /// Returns the demand for lending and resets the peak.
    pub fn take_demand(&self) -> SeatDemand {
        let mut inner = self.lock_state();
        let peak = std::mem::replace(&mut inner.peak, 0);
        inner.record_demand();
        // Demand decays slowly.
        inner.expected = (peak as f64).max(0.977 * inner.expected + 0.023 * peak as f64);
        SeatDemand { lower: inner.lower, upper: inner.upper, wanted: inner.expected, exempt: inner.exempt }
    }

    /// Sets the current seats.
    pub fn set_limit(self: &Arc<Self>, limit: usize) {
        let mut inner = self.lock_state();
        inner.limit = limit;
        Self::dispatch_requests(self, inner);
    }

    /// Returns a snapshot.
    pub fn take_snapshot(&self) -> LevelSnapshot {
        let inner = self.lock_state();
        let mut counts = inner.counts.clone();
        for waiter in inner.queues.iter().flat_map(QueueSet::waiting_requests).filter(|waiter| !waiter.go.is_closed()) {
            counts.entry(waiter.schema.clone()).or_default().waiting += 1;
        }
        LevelSnapshot {
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
pub struct SeatDemand {
    /// Minimum seats.
    pub lower: usize,
    /// Maximum seats.
    pub upper: usize,
    /// Expected demand.
    pub wanted: f64,
    /// Exempt levels take what they need.
    pub exempt: bool,
}

impl LevelState {
    fn can_accommodate_seats(&self, width: usize) -> bool {
        self.taken == 0 && self.limit > 0 || self.taken + width <= self.limit
    }

    fn record_demand(&mut self) {
        let waiting = self.queues.as_ref().map_or(0, QueueSet::waiting_seats);
        self.peak = self.peak.max(self.taken + waiting);
    }
}
