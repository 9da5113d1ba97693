//! Proxied upgrades: after the backend has switched protocols, both connections are joined.

use std::net::SocketAddr;

use api::status::Status;
use apiserver_core::{Body, BodyError, backend::Backend, body::full_body};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use tokio_util::sync::CancellationToken;
pub use transport::is_upgrade_request;

use crate::backend_error;

/// Hop-by-hop headers, besides those that `Connection` names.
const HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Forwards an upgrade to `path` of a backend; 400 if the request is not an upgrade.
pub async fn proxy_upgrade(
    stopping: &CancellationToken,
    backend: &Backend,
    path: &str,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    if !is_upgrade_request(request.headers()) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let client = hyper::upgrade::on(&mut request);
    let mut passed = Request::new(full_body(""));
    *passed.method_mut() = request.method().clone();
    *passed.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path:?} is no path: {error}")))?;
    *passed.headers_mut() = forwarded_headers(&request, backend);
    remove_body_headers(passed.headers_mut());
    append_forwarded_for(&mut passed, request.extensions().get());
    let answer =
        backend.send_request(passed).await.map_err(|error| backend_error(format!("error dialing backend: {error}")))?;
    join_connections(stopping, client, answer)
}

/// Handles the backend's response to an upgrade; if it switched protocols, both connections are joined.
pub fn join_connections(
    stopping: &CancellationToken,
    client: OnUpgrade,
    mut answer: Response<Incoming>,
) -> Result<Response<Body>, Status> {
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        code if code.as_u16() < 400 => {
            return Err(backend_error(format!("invalid upgrade response: status code {}", code.as_u16())));
        }
        _ => return Ok(answer.map(|body| body.map_err(BodyError::new).boxed_unsync())),
    }
    transport::join_upgrades(client, hyper::upgrade::on(&mut answer), stopping.clone());
    Ok(answer.map(|_| full_body("")))
}

/// Returns the headers of a forwarded request, without those for this server and with the backend's host.
pub fn forwarded_headers(request: &Request<Body>, backend: &Backend) -> HeaderMap {
    let mut headers = request.headers().clone();
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own_header(name)).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if !headers.contains_key(header::HOST)
        && let Ok(host) = HeaderValue::from_str(&host.unwrap_or_else(|| backend.host_and_port()))
    {
        headers.insert(header::HOST, host);
    }
    headers
}

/// Removes hop-by-hop headers.
pub fn strip_hop_by_hop_headers(headers: &mut HeaderMap) {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        connection.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(*name);
    }
}

/// Removes body headers: the bytes after an upgrade belong to the stream.
pub fn remove_body_headers(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
}

fn is_own_header(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-")
}

/// Appends the client to `X-Forwarded-For`.
pub fn append_forwarded_for(request: &mut Request<Body>, client: Option<&SocketAddr>) {
    let Some(client) = client else { return };
    let mut all: Vec<String> = request
        .headers()
        .get_all(FORWARDED_FOR)
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    all.push(client.ip().to_string());
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        request.headers_mut().insert(FORWARDED_FOR, value);
    }
}
