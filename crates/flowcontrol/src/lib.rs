//! Flow control: API priority and fairness, or two plain limits if that is disabled.
//!
//! A request is matched to a flow schema, which names a priority level and a flow. Each level has seats; a request
//! takes as many as its work estimate. Without free seats it waits in one of the queues that its flow is dealt by
//! shuffle sharding; queues are served fairly. A request that cannot wait gets 429. Watches hold their seats only until
//! they are initialized; streams and components of this process are exempt.

pub mod bootstrap;
mod classify;
mod config;
mod follow;
mod lending;
mod level;
mod limits;
mod queues;
mod settings;
mod work_estimator;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use api::schema::schema;
use apiserver_core::{Caller, cache_index::CacheIndex, metrics::family::HistogramFamily};
pub use classify::RequestDigest;
use config::Config;
use follow::Objects;
pub use follow::run;
use http::{HeaderName, HeaderValue, Response};
use level::Level;
pub use level::{Counts, Refused, View};
pub use settings::Load;

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const WAITS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Admits requests by flow schema and priority level.
pub struct FlowController {
    store: Arc<dyn store::Store>,
    objects: CacheIndex<Objects>,
    limits: limits::Limits,
    widths: work_estimator::WorkEstimator,
    waits: HistogramFamily<Wait>,
    fair: bool,
    seats: usize,
    /// Maximum wait for seats.
    patience: Duration,
}

/// The labels of wait metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// Flow schema.
    pub schema: Arc<str>,
    /// Priority level.
    pub level: Arc<str>,
    /// Whether the request was executed.
    pub served: bool,
}

/// The configuration and the levels at work. Levels outlive changes of their objects.
struct State {
    config: Config,
    levels: HashMap<String, Arc<Level>>,
}

/// The seats of a request, and the UIDs for its response headers.
#[derive(Default)]
pub struct SeatPermit {
    marks: Option<(HeaderValue, HeaderValue)>,
    _seats: Option<level::Seats>,
    _limit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl FlowController {
    /// Builds flow control over the objects in the watch cache.
    pub fn new(
        load: &Load,
        store: &Arc<dyn store::Store>,
        cache: &Arc<store::WatchCache>,
    ) -> Result<Self, store::StoreError> {
        let seats = load.reads + load.writes;
        let resources = follow::RESOURCES.map(|name| schema().resource(follow::GROUP, "v1", name));
        let resources: Vec<_> = resources.into_iter().flatten().collect();
        Ok(Self {
            store: store.clone(),
            objects: CacheIndex::new(cache, &resources, Objects::new(seats))?,
            limits: limits::Limits::new(load),
            widths: work_estimator::WorkEstimator::default(),
            waits: HistogramFamily::new(WAITS, 1e-6),
            fair: load.fairness,
            seats,
            patience: load.request_timeout / 4,
        })
    }

    fn state(&self) -> Arc<State> {
        self.objects.read(|objects| objects.state.clone())
    }

    /// Lends idle seats in the background.
    fn lend(&self) {
        let state = self.state();
        let levels: Vec<&Arc<Level>> = state.levels.values().collect();
        lending::lend(&levels, self.seats);
    }

    /// The distribution of wait times.
    pub fn waits(&self) -> &HistogramFamily<Wait> {
        &self.waits
    }

    /// Snapshots of all levels.
    pub fn levels(&self) -> Vec<level::View> {
        let mut views: Vec<_> = self.state().levels.values().map(|level| level.view()).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }
}

impl FlowController {
    /// Admits a request: waits for its seats, or rejects it. Components of this process and streams are not limited.
    pub async fn admit(&self, caller: &Caller, asked: &RequestDigest<'_>) -> Result<SeatPermit, RejectedRequest> {
        if matches!(caller, Caller::Component(_)) || asked.is_stream_but_watch() {
            return Ok(SeatPermit::default());
        }
        if !self.fair {
            let limit = self.limits.admit(asked).map_err(|()| RejectedRequest::default())?;
            return Ok(SeatPermit { _limit: limit, ..SeatPermit::default() });
        }
        let state = self.state();
        let Some(found) = state.config.classify(caller, asked) else { return Ok(SeatPermit::default()) };
        let marks = Some((found.schema.uid.clone(), found.level_uid.clone()));
        let Some(level) = state.levels.get(&found.schema.level) else {
            return Ok(SeatPermit { marks, ..SeatPermit::default() });
        };
        let width = self.widths.estimate_seats(&*self.store, asked).await;
        let began = Instant::now();
        let entered = level.enter(&found.schema.name, found.hash, width, self.patience).await;
        let wait = Wait { schema: found.schema.name.clone(), level: level.name(), served: entered.is_ok() };
        self.waits.observe(&wait, u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
        match entered {
            Ok(seats) => Ok(SeatPermit { marks, _seats: Some(seats), _limit: None }),
            Err(refused) => {
                let (level, schema) = (&*found.schema.level, &*found.schema.name);
                tracing::debug!(level, schema, reason = refused.reason(), "flow control: request rejected");
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

impl Refused {
    /// Upstream's reason label.
    pub fn reason(self) -> &'static str {
        match self {
            Refused::NoSeats => "concurrency-limit",
            Refused::QueueFull => "queue-full",
            Refused::TooLong => "time-out",
        }
    }
}

#[cfg(test)]
mod level_tests;
