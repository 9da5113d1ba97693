//! Headers of every response.

use apiserver_core::Body;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

/// The audit ID header.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// A longer audit ID of a client is truncated, as upstream does.
const MAX_AUDIT_ID: usize = 64;

/// The audit ID of a request: the client's or a new one.
pub fn audit_id(headers: &HeaderMap) -> HeaderValue {
    let given = headers.get(AUDIT_ID).filter(|id| !id.is_empty());
    let given = given.and_then(|id| HeaderValue::from_bytes(&id.as_bytes()[..id.len().min(MAX_AUDIT_ID)]).ok());
    given.unwrap_or_else(|| {
        // The ID must be unique, not unpredictable.
        let id = uuid::Builder::from_random_bytes(fastrand::u128(..).to_be_bytes()).into_uuid();
        HeaderValue::from_str(&id.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
    })
}

/// Sets the audit ID and a default `Cache-Control`.
pub fn set_response_headers(response: &mut Response<Body>, audit_id: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, audit_id);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
}
