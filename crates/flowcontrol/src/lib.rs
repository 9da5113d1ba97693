//! Flow control: API priority and fairness, or two plain limits if that is disabled.
//!
//! A request is matched to a flow schema, which names a priority level and a flow. Each level has seats; a request
//! takes as many as its work estimate. Without free seats it waits in one of the queues that its flow is dealt by
//! shuffle sharding; queues are served fairly. A request that cannot wait gets 429. Watches hold their seats only until
//! they are initialized; streams and components of this process are exempt.

pub mod bootstrap;
mod borrowing;
mod classify;
mod config;
mod config_controller;
mod max_in_flight;
mod options;
mod priority_level;
mod queue_set;
mod work_estimator;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use api::schema::schema;
use apiserver_core::{Caller, cache_index::CacheIndex, metrics::family::HistogramFamily};
pub use classify::RequestDigest;
use config::FlowControlConfig;
use config_controller::ConfigIndex;
pub use config_controller::run_seat_borrowing;
use http::{HeaderName, HeaderValue, Response};
pub use options::FlowControlOptions;
use priority_level::PriorityLevel;
pub use priority_level::{FlowSchemaCounts, LevelSnapshot, RejectReason};

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const WAITS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Admits requests by flow schema and priority level.
pub struct FlowController {
    store: Arc<dyn store::Store>,
    objects: CacheIndex<ConfigIndex>,
    limits: max_in_flight::MaxInFlightLimits,
    widths: work_estimator::WorkEstimator,
    waits: HistogramFamily<WaitLabels>,
    fair: bool,
    seats: usize,
    /// Maximum wait for seats.
    queue_wait: Duration,
}

/// The labels of wait metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitLabels {
    /// Flow schema.
    pub schema: Arc<str>,
    /// Priority level.
    pub level: Arc<str>,
    /// Whether the request was executed.
    pub served: bool,
}

/// The configuration and the levels at work. Levels outlive changes of their objects.
struct ControllerState {
    config: FlowControlConfig,
    levels: HashMap<String, Arc<PriorityLevel>>,
}

/// The seats of a request, and the UIDs for its response headers.
#[derive(Default)]
pub struct SeatPermit {
    marks: Option<(HeaderValue, HeaderValue)>,
    _seats: Option<priority_level::HeldSeats>,
    _limit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl FlowController {
    /// Builds flow control over the objects in the watch cache.
    pub fn new(
        load: &FlowControlOptions,
        store: &Arc<dyn store::Store>,
        cache: &Arc<store::WatchCache>,
    ) -> Result<Self, store::StoreError> {
        let seats = load.reads + load.writes;
        let resources =
            config_controller::RESOURCES.map(|name| schema().resource(config_controller::GROUP, "v1", name));
        let resources: Vec<_> = resources.into_iter().flatten().collect();
        Ok(Self {
            store: store.clone(),
            objects: CacheIndex::new(cache, &resources, ConfigIndex::new(seats))?,
            limits: max_in_flight::MaxInFlightLimits::new(load),
            widths: work_estimator::WorkEstimator::default(),
            waits: HistogramFamily::new(WAITS, 1e-6),
            fair: load.fairness,
            seats,
            queue_wait: load.request_timeout / 4,
        })
    }

    fn current_state(&self) -> Arc<ControllerState> {
        self.objects.read(|objects| objects.state.clone())
    }

    /// Lends idle seats in the background.
    fn update_borrowing(&self) {
        let state = self.current_state();
        let levels: Vec<&Arc<PriorityLevel>> = state.levels.values().collect();
        borrowing::update_borrowing(&levels, self.seats);
    }

    /// The distribution of wait times.
    pub fn wait_durations(&self) -> &HistogramFamily<WaitLabels> {
        &self.waits
    }

    /// Snapshots of all levels.
    pub fn level_snapshots(&self) -> Vec<priority_level::LevelSnapshot> {
        let mut views: Vec<_> = self.current_state().levels.values().map(|level| level.take_snapshot()).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }
}

impl FlowController {
    /// Admits a request: waits for its seats, or rejects it. Components of this process and streams are not limited.
    pub async fn admit_request(
        &self,
        caller: &Caller,
        digest: &RequestDigest<'_>,
    ) -> Result<SeatPermit, RejectedRequest> {
        if matches!(caller, Caller::Component(_)) || digest.is_stream_but_watch() {
            return Ok(SeatPermit::default());
        }
        if !self.fair {
            let limit = self.limits.admit_request(digest).map_err(|()| RejectedRequest::default())?;
            return Ok(SeatPermit { _limit: limit, ..SeatPermit::default() });
        }
        let state = self.current_state();
        let Some(found) = state.config.classify_request(caller, digest) else { return Ok(SeatPermit::default()) };
        let marks = Some((found.schema.uid.clone(), found.level_uid.clone()));
        let Some(level) = state.levels.get(&found.schema.level) else {
            return Ok(SeatPermit { marks, ..SeatPermit::default() });
        };
        let width = self.widths.estimate_seats(&*self.store, digest).await;
        let began = Instant::now();
        let entered = level.start_request(&found.schema.name, found.hash, width, self.queue_wait).await;
        let wait = WaitLabels { schema: found.schema.name.clone(), level: level.name(), served: entered.is_ok() };
        self.waits.observe(&wait, u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        match entered {
            Ok(seats) => Ok(SeatPermit { marks, _seats: Some(seats), _limit: None }),
            Err(refused) => {
                let (level, schema) = (&*found.schema.level, &*found.schema.name);
                tracing::debug!(level, schema, reason = refused.metric_label(), "flow control: request rejected");
                Err(RejectedRequest(SeatPermit { marks, ..SeatPermit::default() }))
            }
        }
    }
}

/// A request that flow control rejects; clients get 429.
#[derive(Default)]
pub struct RejectedRequest(SeatPermit);

impl RejectedRequest {
    /// Adds the flow-schema and priority-level UID headers to the 429 response.
    pub fn add_headers<B>(&self, response: &mut Response<B>) {
        self.0.add_headers(response);
    }
}

impl SeatPermit {
    /// Adds the flow-schema and priority-level UID headers.
    pub fn add_headers<B>(&self, response: &mut Response<B>) {
        if let Some((schema, level)) = &self.marks {
            response.headers_mut().insert(SCHEMA_UID, schema.clone());
            response.headers_mut().insert(LEVEL_UID, level.clone());
        }
    }
}

impl RejectReason {
    /// Upstream's reason label.
    pub fn metric_label(self) -> &'static str {
        match self {
            RejectReason::NoSeats => "concurrency-limit",
            RejectReason::QueueFull => "queue-full",
            RejectReason::TooLong => "time-out",
        }
    }
}

#[cfg(test)]
mod priority_level_tests;
