//! Proxied upgrades: after the backend has switched protocols, both connections are joined.

use std::net::SocketAddr;

use api::status::Status;
use apiserver_core::{Body, BodyError, backend::Backend, body::full_body};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio_util::sync::CancellationToken;

use crate::failed;

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

/// Whether a request asks for an upgrade.
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE) && { connection }.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Forwards an upgrade to `path` of a backend; 400 if the request is not an upgrade.
pub async fn upgrade(
    stopping: &CancellationToken,
    backend: &Backend,
    path: &str,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    if !is_upgrade(request.headers()) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    let client = hyper::upgrade::on(&mut request);
    let mut passed = Request::new(full_body(""));
    *passed.method_mut() = request.method().clone();
    *passed.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path:?} is no path: {error}")))?;
    *passed.headers_mut() = headers(&request, backend);
    without_body(passed.headers_mut());
    append_client(&mut passed, request.extensions().get());
    let answer =
        backend.send_request(passed).await.map_err(|error| failed(format!("error dialing backend: {error}")))?;
    joined(stopping, client, answer)
}

/// Handles the backend's response to an upgrade; if it switched protocols, both connections are joined.
pub fn joined(
    stopping: &CancellationToken,
    client: OnUpgrade,
    mut answer: Response<Incoming>,
) -> Result<Response<Body>, Status> {
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        code if code.as_u16() < 400 => {
            return Err(failed(format!("invalid upgrade response: status code {}", code.as_u16())));
        }
        _ => return Ok(answer.map(|body| body.map_err(BodyError::new).boxed_unsync())),
    }
    let backend = hyper::upgrade::on(&mut answer);
    let stopping = stopping.clone();
    tokio::spawn(async move {
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => streams(TokioIo::new(client), TokioIo::new(backend), stopping).await,
            Err(error) => tracing::debug!(%error, "streaming: upgrade failed, closing the connection"),
        }
    });
    Ok(answer.map(|_| full_body("")))
}

/// Returns the headers of a forwarded request, without those for this server and with the backend's host.
pub fn headers(request: &Request<Body>, backend: &Backend) -> HeaderMap {
    let mut headers = request.headers().clone();
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_for_us(name)).cloned().collect();
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
pub fn strip(headers: &mut HeaderMap) {
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
pub fn without_body(headers: &mut HeaderMap) {
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
}

fn is_for_us(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || name.as_str().starts_with("impersonate-")
}

/// Appends the client to `X-Forwarded-For`.
pub fn append_client(request: &mut Request<Body>, client: Option<&SocketAddr>) {
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

/// Copies both ways until one side ends or the server stops; then closes both.
pub async fn streams<C, B>(client: C, backend: B, stopping: CancellationToken)
where
    C: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let ((mut from_client, mut to_client), (mut from_backend, mut to_backend)) = (split(client), split(backend));
    // A disconnect ends the stream.
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_backend) => {}
        _ = tokio::io::copy(&mut from_backend, &mut to_client) => {}
        () = stopping.cancelled() => {}
    }
    let _ = to_client.shutdown().await;
    let _ = to_backend.shutdown().await;
}
