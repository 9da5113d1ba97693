//! Outbound HTTP of the server itself: webhooks, OIDC issuers and aggregated API servers.
//!
//! An [`HttpClient`] is a pool of connections with one TLS configuration: HTTP/2 where the server offers it, else
//! HTTP/1.1 with keep-alive. Dropping the client closes its idle connections. An [`Endpoint`] is one URL with its
//! credential, whose responses are read whole, up to a limit, within the caller's timeout.

mod connector;
mod endpoint;
mod kubeconfig;
mod retry;
mod root_certificates;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;

use self::connector::Connector;
pub use self::{
    connector::Dialer,
    endpoint::Endpoint,
    kubeconfig::{KubeconfigError, endpoint_from_kubeconfig},
    retry::{RetryBackoff, with_backoff},
    root_certificates::{TlsConfigError, client_config_builder, load_root_certificates, tls_config_for_bundle},
};
use crate::{Body, body::full_body};

/// Largest response body that is read whole.
const MAX_RESPONSE: usize = 4 << 20;
/// Idle connections are closed after this time; the value of Go's client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of idle connections that are kept per server.
const MAX_IDLE: usize = 25;
/// Interval and timeout of HTTP/2 pings, which detect dead connections; upstream's values.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));

/// A failed HTTP exchange.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// The URL is invalid.
    #[error("{0:?} is not a URL with https or http and a host")]
    Url(String),
    /// The connection failed, or ended before the response. The text is that of the innermost cause.
    #[error("{}", innermost_error(.0))]
    Connection(#[from] legacy::Error),
    /// The timeout elapsed.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// The response body ended early or is too large.
    #[error("reading the response: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response has an error status.
    #[error("the server responded {0}: {1}")]
    Status(StatusCode, String),
    /// The response body is malformed.
    #[error("malformed response: {0}")]
    MalformedBody(String),
}

/// A response with its whole body.
#[derive(Debug)]
pub struct HttpResponse {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl HttpResponse {
    /// Returns the body of a successful response.
    pub fn into_success_body(self) -> Result<Bytes, HttpClientError> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(1024)]).trim().to_owned();
        Err(HttpClientError::Status(self.status, text))
    }
}

/// An HTTP client with a pool of connections. Clones share the pool.
#[derive(Clone)]
pub struct HttpClient {
    pool: Client<Connector, Body>,
    /// For requests that ask for an upgrade, which HTTP/2 does not have.
    http1_pool: Client<Connector, Body>,
}

impl HttpClient {
    /// A client with a new pool; `tls` is used for `https`.
    pub fn new(tls: &ClientConfig, dialer: Dialer) -> Self {
        let pool = |protocols: &[&[u8]]| {
            let mut tls = tls.clone();
            tls.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Client::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE)
                .http2_keep_alive_interval(PING.0)
                .http2_keep_alive_timeout(PING.1)
                .build(Connector { tls: Arc::new(tls), dialer: dialer.clone() })
        };
        Self { pool: pool(&[b"h2", b"http/1.1"]), http1_pool: pool(&[b"http/1.1"]) }
    }

    /// Sends a request and waits for the response head; the body is streamed.
    pub async fn send_request(&self, request: Request<Body>) -> Result<Response<Incoming>, HttpClientError> {
        let is_upgrade = request.headers().contains_key(header::UPGRADE);
        let pool = if is_upgrade { &self.http1_pool } else { &self.pool };
        Ok(pool.request(request).await?)
    }

    /// Sends a request and reads the whole response within `timeout`. A request on a connection that the server has just
    /// closed is sent once more.
    pub async fn exchange(
        &self,
        build_request: impl Fn() -> Request<Bytes>,
        timeout: Duration,
    ) -> Result<HttpResponse, HttpClientError> {
        let exchange = async {
            let response = match self.send_request(build_request().map(full_body)).await {
                Err(HttpClientError::Connection(error)) if is_closed_connection(&error) => {
                    self.send_request(build_request().map(full_body)).await
                }
                result => result,
            };
            let (head, body) = response?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(HttpClientError::Body)?;
            Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
        };
        tokio::time::timeout(timeout, exchange).await.map_err(|_| HttpClientError::Timeout)?
    }
}

/// Whether the server closed the connection before it responded.
fn is_closed_connection(error: &legacy::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<hyper::Error>());
    cause.is_some_and(|cause| !cause.is_parse() && !cause.is_user() && !cause.is_timeout())
}

/// The text of the innermost source of an error.
fn innermost_error(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost_error)
}
