//! Requests: path, query, headers and body.

use api::Value;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::kubeconfig::ClientSettings;

/// A request to the API server.
#[derive(Clone, Debug)]
pub struct RestRequest {
    /// The method.
    pub method: Method,
    /// The path, which may have a query.
    pub path: String,
    /// Query parameters.
    pub query: Vec<(String, String)>,
    /// Headers beside those of the client.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Bytes>,
    /// The time limit in nanoseconds when the user gives none; 0 is none.
    pub default_timeout: i64,
    /// Whether a `Status` in the answer is not decoded, as in upstream's discovery client.
    pub opaque_errors: bool,
}

impl RestRequest {
    /// A request without a body, for JSON.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        RestRequest {
            method,
            path: path.into(),
            query: Vec::new(),
            headers: vec![("Accept".into(), "application/json".into())],
            body: None,
            default_timeout: 0,
            opaque_errors: false,
        }
    }

    /// A GET request.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// Adds a query parameter.
    pub fn with_query(mut self, name: &str, value: impl Into<String>) -> Self {
        self.query.push((name.to_owned(), value.into()));
        self
    }

    /// Adds a query parameter unless it is empty.
    pub fn with_optional(self, name: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.with_query(name, value) }
    }

    /// Sets the body and its content type.
    pub fn with_body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self.headers.push(("Content-Type".into(), content_type.into()));
        self
    }

    /// Sets a JSON body.
    pub fn with_json(self, body: &Value) -> Self {
        self.with_body("application/json", body.to_string())
    }

    /// Replaces the `Accept` header.
    pub fn accepting(mut self, accept: &str) -> Self {
        self.headers.retain(|(name, _)| name != "Accept");
        self.headers.push(("Accept".into(), accept.into()));
        self
    }

    /// Whether the answer is a stream of watch events.
    pub fn is_watch(&self) -> bool {
        self.query.iter().any(|(name, value)| name == "watch" && value == "true")
    }

    /// Path and query.
    pub fn target(&self, timeout: i64) -> String {
        let mut query = self.query.clone();
        if timeout != 0 {
            query.push(("timeout".into(), api::duration::format(timeout)));
        }
        let encoded = encode_query(&query);
        let separator = if self.path.contains('?') { "&" } else { "?" };
        if encoded.is_empty() { self.path.clone() } else { format!("{}{separator}{encoded}", self.path) }
    }
}

/// The characters that Go leaves alone in query values.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Encodes query parameters, sorted by name.
pub fn encode_query(parameters: &[(String, String)]) -> String {
    let mut sorted: Vec<&(String, String)> = parameters.iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let encode = |text: &str| utf8_percent_encode(text, QUERY).to_string().replace("%20", "+");
    let pairs: Vec<String> = sorted.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    pairs.join("&")
}

/// The headers of all requests of a client.
pub fn client_headers(settings: &ClientSettings, command: &str) -> Vec<(String, String)> {
    let mut headers = vec![("User-Agent".to_owned(), user_agent())];
    let user = &settings.user;
    if !user.token.is_empty() {
        headers.push(("Authorization".into(), format!("Bearer {}", user.token)));
    } else if !user.username.is_empty() || !user.password.is_empty() {
        let pair = STANDARD.encode(format!("{}:{}", user.username, user.password));
        headers.push(("Authorization".into(), format!("Basic {pair}")));
    }
    let impersonation = &settings.impersonation;
    if !impersonation.user.is_empty() {
        headers.push(("Impersonate-User".into(), impersonation.user.clone()));
    }
    if !impersonation.uid.is_empty() {
        headers.push(("Impersonate-Uid".into(), impersonation.uid.clone()));
    }
    headers.extend(impersonation.groups.iter().map(|group| ("Impersonate-Group".to_owned(), group.clone())));
    let extra = impersonation.extra.iter();
    headers.extend(extra.map(|(key, value)| {
        let key = utf8_percent_encode(key, QUERY).to_string();
        (format!("Impersonate-Extra-{key}"), value.clone())
    }));
    if !command.is_empty() {
        headers.push(("Kubectl-Command".into(), command.to_owned()));
        headers.push(("Kubectl-Session".into(), session_id()));
    }
    headers
}

fn user_agent() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("kubectl/{} (linux/{architecture}) kubernetes/ferry", api::KUBERNETES_VERSION)
}

fn session_id() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 48 & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}
