//! Documents with ETags: a client with the current ETag gets 304.

use api::cached_document::CachedDocument;
use apiserver_core::{Body, body::full_body};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

/// 200 with a document and its ETag, or 304 for a client that has it.
pub fn document_response(request: &Parts, page: &CachedDocument, content_type: &'static str) -> Response<Body> {
    let known = request.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if page.matches_etag(known) {
        let mut response = with_etag(Bytes::new(), page);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return response;
    }
    let mut response = with_etag(page.bytes.clone(), page);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// 301 to the current URL of a document.
pub fn redirect_response(location: &str, page: &CachedDocument) -> Response<Body> {
    let mut response = with_etag(Bytes::new(), page);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(value) = HeaderValue::from_str(location) {
        headers.insert(header::LOCATION, value);
    }
    response
}

/// Sets `Cache-Control`.
pub fn with_cache_control(mut response: Response<Body>, how: &'static str) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(how));
    response
}

fn with_etag(body: Bytes, page: &CachedDocument) -> Response<Body> {
    let mut response = Response::new(full_body(body));
    let headers = response.headers_mut();
    // ETags are hexadecimal digits.
    if let Ok(value) = HeaderValue::from_str(&page.etag()) {
        headers.insert(header::ETAG, value);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
