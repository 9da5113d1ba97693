//! Health of the proxy: whether changes reach the kernel in time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::http_server::{ResponseBody, body_of};

/// Time for a change to reach the kernel, twice the longest sync period.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// The state of the proxy as `/healthz` and health check ports report it.
#[derive(Debug, Default)]
pub(crate) struct ProxyHealth {
    state: Mutex<HealthState>,
    /// The node is being deleted.
    ineligible: AtomicBool,
}

#[derive(Debug, Default)]
struct HealthState {
    oldest_pending: Option<Instant>,
    last_updated: Option<Timestamp>,
}

impl ProxyHealth {
    /// Records that a change arrived.
    pub fn record_pending(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.oldest_pending.get_or_insert_with(Instant::now);
    }

    /// Records that all changes are in the kernel.
    pub fn record_update(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = HealthState { oldest_pending: None, last_updated: Some(Timestamp::now()) };
    }

    /// Sets whether load balancers may send traffic to this node.
    pub fn set_eligible(&self, eligible: bool) {
        self.ineligible.store(!eligible, Ordering::Relaxed);
    }

    /// Whether no change waits for too long.
    pub fn is_healthy(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.oldest_pending.is_none_or(|since| since.elapsed() < HEALTH_TIMEOUT)
    }

    /// Answers `/healthz` and `/livez`; `None` for other paths.
    pub fn respond(self: &Arc<Self>, path: &str) -> Option<Response<ResponseBody>> {
        let healthy = self.is_healthy();
        let eligible = !self.ineligible.load(Ordering::Relaxed);
        let now = Timestamp::now();
        let last = self.state.lock().unwrap_or_else(PoisonError::into_inner).last_updated;
        let shown = if healthy { Some(now) } else { last };
        let mut body = json!({ "lastUpdated": shown.map(|time| time.to_string()), "currentTime": now.to_string() });
        let good = match path {
            "/healthz" => {
                body["nodeEligible"] = Value::Bool(eligible);
                healthy && eligible
            }
            "/livez" => healthy,
            _ => return None,
        };
        Some(json_response(if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body.to_string()))
    }
}

/// A JSON response that browsers do not guess the type of.
pub(crate) fn json_response(status: StatusCode, body: String) -> Response<ResponseBody> {
    let mut response = Response::new(body_of(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}
