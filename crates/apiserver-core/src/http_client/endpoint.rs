//! One URL with its credential.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Uri, header};
use rustls::ClientConfig;

use super::{Dialer, HttpClient, HttpClientError, HttpResponse};

/// A URL that requests are sent to.
pub struct Endpoint {
    client: HttpClient,
    url: Uri,
    /// The URL as it was configured, for messages.
    text: String,
    user_agent: &'static str,
    credential: Option<HeaderValue>,
}

impl Endpoint {
    /// An endpoint at a URL with connections of its own; `tls` is used for `https`.
    pub fn new(url: &str, tls: Arc<ClientConfig>) -> Result<Self, HttpClientError> {
        let invalid = || HttpClientError::Url(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| invalid())?;
        if parsed.host().is_none() || !matches!(parsed.scheme_str(), Some("https" | "http")) {
            return Err(invalid());
        }
        Ok(Self::with_client(HttpClient::new(&tls, Dialer::Host), parsed, url.to_owned(), "kube-apiserver"))
    }

    /// An endpoint that shares the connections of `client`; `text` is the URL for messages.
    pub fn with_client(client: HttpClient, url: Uri, text: String, user_agent: &'static str) -> Self {
        Self { client, url, text, user_agent, credential: None }
    }

    /// Sends a credential with every request.
    #[must_use]
    pub fn with_credential(mut self, credential: Option<HeaderValue>) -> Self {
        self.credential = credential;
        self
    }

    /// The URL of the endpoint.
    pub fn url(&self) -> &str {
        &self.text
    }

    /// Sends a GET request.
    pub async fn get(&self, timeout: Duration) -> Result<HttpResponse, HttpClientError> {
        self.client.exchange(|| self.build_request(Method::GET, Bytes::new()), timeout).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, body: impl Into<Bytes>, timeout: Duration) -> Result<HttpResponse, HttpClientError> {
        let body = body.into();
        self.client.exchange(|| self.build_request(Method::POST, body.clone()), timeout).await
    }

    fn build_request(&self, method: Method, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(self.user_agent));
        if method == Method::POST {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(credential) = &self.credential {
            headers.insert(header::AUTHORIZATION, credential.clone());
        }
        (*request.method_mut(), *request.uri_mut()) = (method, self.url.clone());
        request
    }
}

impl fmt::Debug for Endpoint {
    /// Leaves out the credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({})", self.text)
    }
}
