//! Connections to backends: kubelets, pods and nodes, by HTTP/1.1, with or without TLS.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    CertificateError, ClientConfig, SignatureScheme, client::ResolvesClientCert, pki_types::ServerName,
    sign::CertifiedKey,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
pub use transport::without_verification;

use crate::{Body, services::ResolveError};

/// Timeout for connecting, TLS included; upstream's value.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A server that requests are sent to.
#[derive(Clone)]
pub struct Backend {
    /// DNS name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// TLS configuration; `None` for plain HTTP.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A failed connection, with Go's error texts.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The TCP connection failed.
    #[error("dial tcp {address}: {reason}")]
    Connect {
        /// `host:port` of the backend.
        address: String,
        /// The error text of Go's `net` package.
        reason: String,
    },
    /// The TLS handshake failed or the certificate is not accepted.
    #[error("tls: {0}")]
    Tls(String),
    /// The Service of the host has no endpoint.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// Sends requests on one connection.
pub type RequestSender = http1::SendRequest<Body>;

impl Backend {
    /// `host:port`, with IPv6 addresses in brackets.
    pub fn host_and_port(&self) -> String {
        join_host_port(&self.host, self.port)
    }

    /// Sends a request, whose URI is a path, and waits for the response head.
    pub async fn send_request(&self, request: Request<Body>) -> Result<Response<Incoming>, BackendError> {
        let connection = tokio::time::timeout(CONNECT_TIMEOUT, self.connect()).await;
        let timed_out = || BackendError::Connect { address: self.host_and_port(), reason: "i/o timeout".into() };
        let mut sender = connection.map_err(|_| timed_out())??;
        Ok(sender.send_request(request).await?)
    }

    /// Opens a connection for HTTP/1.1.
    pub async fn connect(&self) -> Result<RequestSender, BackendError> {
        let stream = connect_tcp(&self.host, self.port).await?;
        match &self.tls {
            Some(tls) => handshake_http(connect_tls(tls, &self.host, stream).await?).await,
            None => handshake_http(stream).await,
        }
    }
}

/// `host:port`, with IPv6 addresses in brackets.
pub fn join_host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Opens a TCP connection.
pub async fn connect_tcp(host: &str, port: u16) -> Result<TcpStream, BackendError> {
    let failed = |error: std::io::Error| BackendError::Connect {
        address: join_host_port(host, port),
        reason: connect_error_text(&error),
    };
    let stream = TcpStream::connect((host, port)).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    Ok(stream)
}

/// Performs a TLS handshake; the certificate must be valid for `name`.
pub async fn connect_tls<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Arc<ClientConfig>,
    name: &str,
    stream: S,
) -> Result<TlsStream<S>, BackendError> {
    let name = ServerName::try_from(name.to_owned()).map_err(|error| BackendError::Tls(error.to_string()))?;
    let connected = TlsConnector::from(tls.clone()).connect(name, stream).await;
    connected.map_err(|error| BackendError::Tls(tls_error_text(&error)))
}

/// Formats a TLS error with the text of Go's `crypto/tls` and `crypto/x509`, where they have one.
fn tls_error_text(error: &std::io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let certificate_error = match inner {
        Some(rustls::Error::InvalidCertificate(certificate_error)) => certificate_error,
        _ => return error.to_string(),
    };
    let text = match certificate_error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "certificate signed by unknown authority",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired or is not yet valid"
        }
        _ => return format!("failed to verify certificate: {certificate_error}"),
    };
    format!("failed to verify certificate: x509: {text}")
}

async fn handshake_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<RequestSender, BackendError> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "backend: connection ended");
        }
    });
    Ok(sender)
}

fn connect_error_text(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        std::io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        std::io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        std::io::ErrorKind::TimedOut => "i/o timeout".into(),
        _ => error.to_string(),
    }
}

/// Returns the configuration without verification and without a client certificate.
pub fn without_verification_or_identity(tls: &ClientConfig) -> ClientConfig {
    let mut config = (*without_verification(tls)).clone();
    config.client_auth_cert_resolver = Arc::new(NoClientCert);
    config
}

/// Presents no client certificate.
#[derive(Debug)]
struct NoClientCert;

impl ResolvesClientCert for NoClientCert {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
