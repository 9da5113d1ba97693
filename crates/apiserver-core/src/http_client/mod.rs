//! HTTP to others on the server's own account: webhooks, and issuers of tokens.
//!
//! An [`Endpoint`] is one URL and how to speak to it; connections that are free are used again. What comes back is read whole
//! and bounded; nothing is waited for longer than its caller says.

mod kubeconfig;
mod memory;
mod retry;
mod roots;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
pub use kubeconfig::{KubeconfigError, from_kubeconfig};
pub use memory::Memory;
pub use retry::{Backoff, with_backoff};
pub use roots::{client_tls, trusting};
use rustls::ClientConfig;

use crate::{
    backend,
    backend::{Backend, Sender},
    body::full_body,
};

/// The largest answer that is read.
const MAX_ANSWER: usize = 4 << 20;
/// How many free connections are kept.
const MAX_FREE: usize = 16;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a URL that can be called.
    #[error("{0:?} is not a URL with https or http and a host")]
    Url(String),
    /// Nobody is there, or nobody to be trusted.
    #[error("{0}")]
    Connect(#[from] backend::Error),
    /// It took too long.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Late,
    /// The answer broke off, or is too large.
    #[error("reading the answer: {0}")]
    Body(String),
    /// The answer is not what was asked for.
    #[error("the server answered {0}: {1}")]
    Status(StatusCode, String),
    /// The answer cannot be understood.
    #[error("the answer cannot be understood: {0}")]
    Answer(String),
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its code.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// All of it.
    pub body: Bytes,
}

impl Answer {
    /// The body of an answer that says that all is well.
    pub fn successful(self) -> Result<Bytes, Error> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(1024)]).trim().to_owned();
        Err(Error::Status(self.status, text))
    }
}

/// One URL.
pub struct Endpoint {
    backend: Backend,
    /// Path and query.
    path: String,
    url: String,
    credential: Option<HeaderValue>,
    free: Mutex<Vec<Sender>>,
}

impl Endpoint {
    /// What is at a URL; `tls` is for those with `https`.
    pub fn new(url: &str, tls: Arc<ClientConfig>) -> Result<Self, Error> {
        let wrong = || Error::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        let host = parsed.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let (tls, port) = match parsed.scheme_str() {
            Some("https") => (Some(tls), 443),
            Some("http") => (None, 80),
            _ => return Err(wrong()),
        };
        let path = parsed.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let backend = Backend { host, port: parsed.port_u16().unwrap_or(port), tls };
        Ok(Self { backend, path, url: url.to_owned(), credential: None, free: Mutex::default() })
    }

    /// With a credential in every request.
    #[must_use]
    pub fn with_credential(mut self, credential: Option<HeaderValue>) -> Self {
        self.credential = credential;
        self
    }

    /// The URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads what is there.
    pub async fn get(&self, limit: Duration) -> Result<Answer, Error> {
        self.send(Method::GET, Bytes::new(), limit).await
    }

    /// Sends JSON there.
    pub async fn post(&self, body: impl Into<Bytes>, limit: Duration) -> Result<Answer, Error> {
        self.send(Method::POST, body.into(), limit).await
    }

    async fn send(&self, method: Method, body: Bytes, limit: Duration) -> Result<Answer, Error> {
        tokio::time::timeout(limit, self.exchange(method, body)).await.map_err(|_| Error::Late)?
    }

    async fn exchange(&self, method: Method, body: Bytes) -> Result<Answer, Error> {
        let mut sender = match self.take() {
            Some(free) => free,
            None => self.backend.connect().await?,
        };
        let response = match sender.send_request(self.request(&method, body.clone())?).await {
            // A connection that was free for a while may have been closed meanwhile.
            Err(error) if error.is_canceled() || error.is_closed() || error.is_incomplete_message() => {
                sender = self.backend.connect().await?;
                sender.send_request(self.request(&method, body)?).await.map_err(backend::Error::from)?
            }
            other => other.map_err(backend::Error::from)?,
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| Error::Body(error.to_string()))?;
        self.give_back(sender);
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    fn request(&self, method: &Method, body: Bytes) -> Result<Request<crate::Body>, Error> {
        let mut request =
            Request::builder().method(method).uri(&self.path).header(header::HOST, self.backend.authority());
        request = request.header(header::ACCEPT, "application/json, */*").header(header::USER_AGENT, "kube-apiserver");
        if *method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(credential) = &self.credential {
            request = request.header(header::AUTHORIZATION, credential);
        }
        request.body(full_body(body)).map_err(|_| Error::Url(self.url.clone()))
    }

    fn take(&self) -> Option<Sender> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(sender) = free.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn give_back(&self, sender: Sender) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MAX_FREE && !sender.is_closed() {
            free.push(sender);
        }
    }
}

impl fmt::Debug for Endpoint {
    /// Without the credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.url)
    }
}
