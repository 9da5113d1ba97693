//! The httpGet handler: redirects to the same host are followed, as upstream does.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::HTTPGetAction;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::{DialError, HandlerError, HandlerSuccess, HandlerTarget, MAX_OUTPUT, bracket_ipv6, dial};

const MAX_REDIRECTS: usize = 10;

/// Cause of a failed HTTP request.
#[derive(Debug, thiserror::Error)]
pub enum HttpGetError {
    /// The request exceeded its timeout.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// The connection failed.
    #[error("{0}")]
    Dial(#[from] DialError),
    /// The HTTP exchange failed.
    #[error("{}", exchange_cause(.0))]
    Exchange(#[from] hyper::Error),
    /// The request is invalid, for example a header.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// A URL is invalid.
    #[error("{0}")]
    Uri(#[from] http::uri::InvalidUri),
    /// TLS could not be configured.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The TLS handshake failed.
    #[error("{0}")]
    Handshake(#[from] io::Error),
    /// The host is not a valid server name.
    #[error("{0}")]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    /// Too many redirects.
    #[error("stopped after {MAX_REDIRECTS} redirects")]
    Redirects,
}

/// Formats a broken exchange as Go does.
fn exchange_cause(error: &hyper::Error) -> String {
    if error.is_incomplete_message() { "EOF".into() } else { error.to_string() }
}

/// The response that decides.
struct ProbeResponse {
    status: u16,
    body: Bytes,
    location: Option<String>,
}

impl HandlerTarget<'_> {
    /// Sends an HTTP GET; status 200 through 399 is a success.
    pub async fn check_http(&self, action: &HTTPGetAction, agent: &str) -> Result<HandlerSuccess, HandlerError> {
        let url = self.build_url(action)?;
        let failed = |source| HandlerError::Http { url: url.clone(), source };
        let exchange = follow_redirects(&url, action, agent, self.timeout);
        let response = tokio::time::timeout(self.timeout, exchange).await;
        let response = response.unwrap_or(Err(HttpGetError::Timeout)).map_err(failed)?;
        match response.status {
            200..300 => Ok(HandlerSuccess::Healthy),
            300..400 => {
                let body = String::from_utf8_lossy(&response.body);
                Ok(HandlerSuccess::Warning(format!("Probe terminated redirects, Response body: {body}")))
            }
            status => Err(HandlerError::Status(status)),
        }
    }

    fn build_url(&self, action: &HTTPGetAction) -> Result<String, HandlerError> {
        let scheme = if action.scheme.as_deref() == Some("HTTPS") { "https" } else { "http" };
        let host = bracket_ipv6(self.host_or_pod_ip(action.host.as_deref()));
        let port = self.resolve_port(&action.port)?;
        let path = action.path.as_deref().unwrap_or_default();
        let slash = if path.starts_with('/') || path.is_empty() { "" } else { "/" };
        Ok(format!("{scheme}://{host}:{port}{slash}{path}"))
    }
}

async fn follow_redirects(
    url: &str,
    action: &HTTPGetAction,
    agent: &str,
    timeout: Duration,
) -> Result<ProbeResponse, HttpGetError> {
    let mut uri: Uri = url.parse()?;
    for _ in 0..MAX_REDIRECTS {
        let response = send_get(&uri, action, agent, timeout).await?;
        let target = response.location.as_deref().and_then(|location| resolve_location(&uri, location));
        match target {
            Some(next) if next.host() == uri.host() && is_redirect(response.status) => uri = next,
            _ => return Ok(response),
        }
    }
    Err(HttpGetError::Redirects)
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Resolves a `Location` header; `None` if it is malformed.
fn resolve_location(base: &Uri, location: &str) -> Option<Uri> {
    if location.contains("://") {
        return location.parse().ok();
    }
    let path = match location.strip_prefix('/') {
        Some(_) => location.to_string(),
        None => format!("{}/{location}", base.path().rsplit_once('/').map_or("", |(parent, _)| parent)),
    };
    format!("{}://{}{path}", base.scheme_str()?, base.authority()?).parse().ok()
}

async fn send_get(
    uri: &Uri,
    action: &HTTPGetAction,
    agent: &str,
    timeout: Duration,
) -> Result<ProbeResponse, HttpGetError> {
    let tls = uri.scheme_str() == Some("https");
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let request = build_request(uri, action, agent)?;
    let stream = dial(host, port, timeout).await?;
    if tls {
        return exchange(connect_tls(stream, host).await?, request).await;
    }
    exchange(stream, request).await
}

fn build_request(uri: &Uri, action: &HTTPGetAction, agent: &str) -> Result<http::Request<Empty<Bytes>>, HttpGetError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = http::Request::get(path);
    let headers = action.http_headers.as_deref().unwrap_or_default();
    let named = |name: &str| headers.iter().rev().find(|header| header.name.eq_ignore_ascii_case(name));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    request = request.header(header::HOST, named("host").map_or(authority, |host| &host.value));
    if named("user-agent").is_none() {
        request = request.header(header::USER_AGENT, agent);
    }
    if named("accept").is_none() {
        request = request.header(header::ACCEPT, "*/*");
    }
    for header in headers.iter().filter(|header| !header.name.eq_ignore_ascii_case("host")) {
        // An empty Accept header removes the default.
        if !(header.name.eq_ignore_ascii_case("accept") && header.value.is_empty()) {
            request = request.header(&header.name, &header.value);
        }
    }
    Ok(request.body(Empty::new())?)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::Request<Empty<Bytes>>,
) -> Result<ProbeResponse, HttpGetError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends when the sender and the response are dropped.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).map(String::from);
    // The status decides; an oversized or broken body is left out.
    let body = Limited::new(response.into_body(), MAX_OUTPUT).collect().await;
    Ok(ProbeResponse { status, body: body.map(|body| body.to_bytes()).unwrap_or_default(), location })
}

async fn connect_tls(
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, HttpGetError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(host.to_string())?;
    // Probes check liveness, not identity, as upstream.
    let connector = tokio_rustls::TlsConnector::from(transport::without_verification(&config));
    Ok(connector.connect(name, stream).await?)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::Container, apimachinery::pkg::util::intstr::IntOrString};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::context::KubeletContext;

    /// Serves `/ok` with 200, `/bad` with 500 and `/to?TARGET` with a redirect; returns its port.
    async fn start_server() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = vec![0; 4096];
                let length = stream.read(&mut buffer).await.unwrap();
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let path = text.split(' ').nth(1).unwrap();
                let head = match path.split_once("/to?") {
                    Some((_, target)) => format!("302 Found\r\nLocation: {target}"),
                    None if path.starts_with("/bad") => "500 Bad".into(),
                    None => "200 OK".into(),
                };
                let response = format!("HTTP/1.1 {head}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody");
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        port
    }

    #[tokio::test]
    async fn status_and_local_redirects_decide() {
        let port = start_server().await;
        let (kubelet, container) = (KubeletContext::unreachable(), Container::default());
        let timeout = Duration::from_secs(10);
        let target = HandlerTarget { kubelet: &kubelet, container: &container, id: "c", ip: "127.0.0.1", timeout };
        let get = async |path: &str| {
            let port = IntOrString::Int(port.into());
            let action = HTTPGetAction { path: Some(path.into()), port, ..Default::default() };
            match target.check_http(&action, "kube-probe/1.36").await {
                Ok(HandlerSuccess::Healthy) => "healthy".to_string(),
                Ok(HandlerSuccess::Warning(text)) => text,
                Err(error) => error.to_string(),
            }
        };
        assert_eq!(get("ok").await, "healthy");
        assert_eq!(get("/bad").await, "HTTP probe failed with statuscode: 500");
        assert_eq!(get("/to?/bad").await, "HTTP probe failed with statuscode: 500");
        assert_eq!(get("/to?http://other.invalid/").await, "Probe terminated redirects, Response body: body");
        let endless = get("/to?/to?/to?/to?/to?/to?/to?/to?/to?/to?/to?/ok").await;
        assert!(endless.ends_with("stopped after 10 redirects"), "{endless}");
    }
}
