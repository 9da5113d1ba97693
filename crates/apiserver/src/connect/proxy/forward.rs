//! Forwards a proxied request and rewrites headers of request and response.

use api::status::Status;
use apiserver_core::{Body, BodyError, backend::Backend};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use streaming::upgrade_proxy;

use super::{NO_CACHE, html, rewrite::LinkRewriter};

/// CORS headers of backends, which are removed.
const CORS_HEADERS: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The host of a client's request.
pub fn request_host(request: &Request<Body>) -> String {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri().authority().map(|authority| authority.as_str()).or(header).unwrap_or_default().to_owned()
}

/// Forwards a request to `path`, which includes the query.
pub async fn forward_request(
    backend: &Backend,
    path: &str,
    links: &LinkRewriter,
    request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let mut headers = upgrade_proxy::forwarded_headers(&request, backend);
    upgrade_proxy::strip_hop_by_hop_headers(&mut headers);
    // Only uncompressed HTML can be rewritten.
    if accepts_html(&headers) {
        headers.remove(header::ACCEPT_ENCODING);
    }
    let only = path.split('?').next().unwrap_or_default();
    if let Ok(uri) = HeaderValue::from_str(&format!("{}{only}", links.prefix)) {
        headers.insert(FORWARDED_URI, uri);
    }
    let client = request.extensions().get().copied();
    let method = request.method().clone();
    let mut passed = Request::new(request.into_body());
    *passed.method_mut() = method;
    *passed.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("invalid path {path:?}: {error}")))?;
    *passed.headers_mut() = headers;
    upgrade_proxy::append_forwarded_for(&mut passed, client.as_ref());
    let unreachable = |error| Status::service_unavailable(format!("error trying to reach service: {error}"));
    let answer = backend.send_request(passed).await.map_err(unreachable)?;
    let mut answer = answer.map(|body| body.map_err(BodyError::new).boxed_unsync());
    upgrade_proxy::strip_hop_by_hop_headers(answer.headers_mut());
    answer.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static(NO_CACHE));
    for name in CORS_HEADERS {
        answer.headers_mut().remove(*name);
    }
    match rewrite_location(&answer, links) {
        Some(location) => {
            answer.headers_mut().insert(header::LOCATION, location);
            Ok(answer)
        }
        None => Ok(html::rewrite_response(answer, links).await),
    }
}

fn accepts_html(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/html"))
}

/// The rewritten `Location` of a response.
fn rewrite_location(answer: &Response<Body>, links: &LinkRewriter) -> Option<HeaderValue> {
    let location = answer.headers().get(header::LOCATION)?.to_str().ok().filter(|location| !location.is_empty())?;
    HeaderValue::from_str(&links.rewrite_link(location)).ok()
}
