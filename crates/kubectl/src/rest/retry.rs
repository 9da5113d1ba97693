//! Requests that are sent again, as upstream's client does it.

use std::time::Duration;

use http::{StatusCode, header::RETRY_AFTER};
use hyper::body::Incoming;

use super::{RestRequest, wire_error::is_lost_connection};

/// The number of times a request is sent again.
pub const MAX_RETRIES: usize = 10;

/// The pause before a reading request is sent again after its connection was lost.
const PAUSE: Duration = Duration::from_secs(1);

/// The pause that a server asks for: `Retry-After` in seconds, with 429 or a server error.
pub fn requested_pause(response: &http::Response<Incoming>) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The pause before a request with this error is sent again.
pub fn pause_after_error(error: &hyper::Error) -> Option<Duration> {
    is_lost_connection(error).then_some(PAUSE)
}

/// Whether the server closed a connection that had served other requests before it took this one, so that it may be sent
/// again at once.
pub fn is_stale_connection(error: &hyper::Error, request: &RestRequest) -> bool {
    error.is_canceled() || request.method == http::Method::GET && is_lost_connection(error)
}
