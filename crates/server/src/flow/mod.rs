//! How much is worked on at once: API priority and fairness, or two plain limits where that is turned off.
//!
//! A request is matched to a flow schema, which names a priority level and tells flows apart. Each level has seats, of
//! which a request takes as many as it is wide; who finds none waits in one of few queues that its flow is dealt, and the
//! queues are served fairly. Who cannot wait is told to come back (429). Watches hold their seats only until they have
//! begun; streams and components of this process are not limited.

mod classify;
mod config;
mod follow;
mod lending;
mod level;
mod limits;
mod queues;
mod width;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use api::{schema::schema, status::Status};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

pub use classify::Asked;
pub use follow::run;
pub use level::{Counts, View};

use crate::{Body, Caller, Load, Server, encode, form::Form, live::Live, metrics::family::Histograms, paths};
use config::Config;
use follow::Objects;
use level::{Level, Refused};

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const WAITS: &[f64] = &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Who gets to work when.
pub struct Flow {
    objects: Live<Objects>,
    limits: limits::Limits,
    widths: width::Widths,
    waits: Histograms<Wait>,
    fair: bool,
    seats: usize,
    /// How long a request may wait for its seats.
    patience: Duration,
}

/// What waits are counted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wait {
    /// The flow schema.
    pub schema: Arc<str>,
    /// The priority level.
    pub level: Arc<str>,
    /// Whether it got to work.
    pub served: bool,
}

/// What the objects say, and the levels at work. Levels outlive changes of their objects.
struct State {
    config: Config,
    levels: HashMap<String, Arc<Level>>,
}

/// What a request holds while it is worked on, and what its answer says of that.
#[derive(Default)]
pub struct Place {
    marks: Option<(HeaderValue, HeaderValue)>,
    _seats: Option<level::Seats>,
    _limit: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl Flow {
    /// As the objects in the cache say.
    pub fn new(load: &Load, cache: &Arc<store::Cache>) -> Result<Self, store::Error> {
        let seats = load.reads + load.writes;
        let resources = follow::RESOURCES.map(|name| schema().resource(follow::GROUP, "v1", name));
        let resources: Vec<_> = resources.into_iter().flatten().collect();
        Ok(Self {
            objects: Live::new(cache, &resources, Objects::new(seats))?,
            limits: limits::Limits::new(load),
            widths: width::Widths::default(),
            waits: Histograms::new(WAITS, 1e-6),
            fair: load.fairness,
            seats,
            patience: load.request_timeout / 4,
        })
    }

    fn state(&self) -> Arc<State> {
        self.objects.read(|objects| objects.state.clone())
    }

    /// Lends seats that nobody asks for to those who do.
    fn lend(&self) {
        let state = self.state();
        let levels: Vec<&Arc<Level>> = state.levels.values().collect();
        lending::lend(&levels, self.seats);
    }

    /// How long requests waited.
    pub fn waits(&self) -> &Histograms<Wait> {
        &self.waits
    }

    /// Every level, for those who look.
    pub fn levels(&self) -> Vec<level::View> {
        let mut views: Vec<_> = self.state().levels.values().map(|level| level.view()).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
    }
}

/// Lets a request in, or has it wait, or gives the answer that turns it away.
pub async fn admit(server: &Server, caller: &Caller, asked: &Asked<'_>) -> Result<Place, Response<Body>> {
    let flow = &server.shared.flow;
    if matches!(caller, Caller::Component(_)) || asked.is_stream_but_watch() {
        return Ok(Place::default());
    }
    if !flow.fair {
        let limit = flow.limits.admit(asked).map_err(|()| turned_away(None))?;
        return Ok(Place { _limit: limit, ..Place::default() });
    }
    let state = flow.state();
    let Some(found) = state.config.classify(caller, asked) else { return Ok(Place::default()) };
    let marks = Some((found.schema.uid.clone(), found.level_uid.clone()));
    let Some(level) = state.levels.get(&found.schema.level) else {
        return Ok(Place { marks, ..Place::default() });
    };
    let width = flow.widths.of(server, asked).await;
    let began = Instant::now();
    let entered = level.enter(&found.schema.name, found.hash, width, flow.patience).await;
    let wait = Wait { schema: found.schema.name.clone(), level: level.name(), served: entered.is_ok() };
    flow.waits.note(&wait, u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    match entered {
        Ok(seats) => Ok(Place { marks, _seats: Some(seats), _limit: None }),
        Err(refused) => {
            tracing::debug!(
                level = found.schema.level,
                schema = &*found.schema.name,
                reason = refused.reason(),
                "turned away"
            );
            Err(turned_away(marks))
        }
    }
}

impl Place {
    /// The answer, with word of where it went through.
    pub fn marked(self, form: Form, result: Result<Response<Body>, Status>) -> Response<Body> {
        let mut response = result.unwrap_or_else(|status| encode::error(form, &status));
        self.mark(&mut response);
        response
    }

    /// Says in the answer which schema and level it went through.
    fn mark(&self, response: &mut Response<Body>) {
        if let Some((schema, level)) = &self.marks {
            response.headers_mut().insert(SCHEMA_UID, schema.clone());
            response.headers_mut().insert(LEVEL_UID, level.clone());
        }
    }
}

fn turned_away(marks: Option<(HeaderValue, HeaderValue)>) -> Response<Body> {
    let mut response = paths::text("Too many requests, please try again later.\n");
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Place { marks, ..Place::default() }.mark(&mut response);
    response
}

impl Refused {
    /// Upstream's word for why.
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
#[cfg(test)]
mod tests;
