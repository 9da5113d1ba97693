//! Outbound HTTP of the server itself: webhooks and OIDC issuers.
//!
//! An [`Endpoint`] is one URL with its TLS configuration and credential; idle connections are reused. Responses are
//! read whole, up to a limit, within the caller's timeout.

mod kubeconfig;
mod response_cache;
mod retry;
mod root_certificates;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
pub use kubeconfig::{KubeconfigError, endpoint_from_kubeconfig};
pub use response_cache::ResponseCache;
pub use retry::{RetryBackoff, with_backoff};
pub use root_certificates::{client_config_builder, load_root_certificates};
use rustls::ClientConfig;

use crate::{
    backend::{self, Backend, RequestSender},
    body::full_body,
};

/// Largest response body.
const MAX_RESPONSE: usize = 4 << 20;
/// Number of idle connections that are kept.
const MAX_IDLE: usize = 16;

/// A failed HTTP exchange.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// The URL is invalid.
    #[error("{0:?} is not a URL with https or http and a host")]
    Url(String),
    /// The connection failed.
    #[error("{0}")]
    Connect(#[from] backend::BackendError),
    /// The timeout elapsed.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// The response body ended early or is too large.
    #[error("reading the response: {0}")]
    Body(String),
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

/// A URL that requests are sent to.
pub struct Endpoint {
    backend: Backend,
    /// Path and query.
    path: String,
    url: String,
    credential: Option<HeaderValue>,
    idle: Mutex<Vec<RequestSender>>,
}

impl Endpoint {
    /// An endpoint at a URL; `tls` is used for `https`.
    pub fn new(url: &str, tls: Arc<ClientConfig>) -> Result<Self, HttpClientError> {
        let invalid = || HttpClientError::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| invalid())?;
        let host = parsed.host().ok_or_else(invalid)?.trim_matches(['[', ']']).to_owned();
        let (tls, port) = match parsed.scheme_str() {
            Some("https") => (Some(tls), 443),
            Some("http") => (None, 80),
            _ => return Err(invalid()),
        };
        let path = parsed.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let backend = Backend { host, port: parsed.port_u16().unwrap_or(port), tls };
        Ok(Self { backend, path, url: url.to_owned(), credential: None, idle: Mutex::default() })
    }

    /// Sends a credential with every request.
    #[must_use]
    pub fn with_credential(mut self, credential: Option<HeaderValue>) -> Self {
        self.credential = credential;
        self
    }

    /// The URL of the endpoint.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sends a GET request.
    pub async fn get(&self, timeout: Duration) -> Result<HttpResponse, HttpClientError> {
        self.send_within(Method::GET, Bytes::new(), timeout).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, body: impl Into<Bytes>, timeout: Duration) -> Result<HttpResponse, HttpClientError> {
        self.send_within(Method::POST, body.into(), timeout).await
    }

    async fn send_within(
        &self,
        method: Method,
        body: Bytes,
        timeout: Duration,
    ) -> Result<HttpResponse, HttpClientError> {
        tokio::time::timeout(timeout, self.exchange(method, body)).await.map_err(|_| HttpClientError::Timeout)?
    }

    async fn exchange(&self, method: Method, body: Bytes) -> Result<HttpResponse, HttpClientError> {
        let mut sender = match self.take_idle() {
            Some(idle) => idle,
            None => self.backend.connect().await?,
        };
        let response = match sender.send_request(self.build_request(&method, body.clone())?).await {
            // An idle connection may have been closed meanwhile.
            Err(error) if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {
                sender = self.backend.connect().await?;
                sender.send_request(self.build_request(&method, body)?).await.map_err(backend::BackendError::from)?
            }
            other => other.map_err(backend::BackendError::from)?,
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE)
            .collect()
            .await
            .map_err(|error| HttpClientError::Body(error.to_string()))?;
        self.return_idle(sender);
        Ok(HttpResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    fn build_request(&self, method: &Method, body: Bytes) -> Result<Request<crate::Body>, HttpClientError> {
        let mut request =
            Request::builder().method(method).uri(&self.path).header(header::HOST, self.backend.host_and_port());
        request = request.header(header::ACCEPT, "application/json, */*").header(header::USER_AGENT, "kube-apiserver");
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(credential) = &self.credential {
            request = request.header(header::AUTHORIZATION, credential);
        }
        request.body(full_body(body)).map_err(|_| HttpClientError::Url(self.url.clone()))
    }

    fn take_idle(&self) -> Option<RequestSender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn return_idle(&self, sender: RequestSender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push(sender);
        }
    }
}

impl fmt::Debug for Endpoint {
    /// Leaves out the credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.url)
    }
}
