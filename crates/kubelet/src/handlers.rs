//! Handlers shared by probes and lifecycle hooks: exec, httpGet, tcpSocket.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, ExecAction, HTTPGetAction, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use runtime::cri::CriError;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::context::KubeletContext;

/// Maximum number of response bytes read.
const MAX_RESPONSE_BODY: usize = 10 << 10;

/// A handler failed; shown in events and probe results.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The command exited with a non-zero code; its output.
    #[error("{0}")]
    Command(String),
    /// The container runtime returned an error.
    #[error("{}", .0.message())]
    Runtime(#[from] CriError),
    /// The action exceeded its timeout.
    #[error("context deadline exceeded (Client.Timeout exceeded while awaiting headers)")]
    Timeout,
    /// A hook exceeded the grace period.
    #[error("timed out")]
    GracePeriod,
    /// The port is neither a number nor a named container port.
    #[error("no port {0:?}")]
    Port(IntOrString),
    /// The HTTP server is unreachable.
    #[error("dial tcp {host}:{port}: {source}")]
    Dial {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The connection failed.
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    /// The request is invalid, for example a header.
    #[error("{0}")]
    Request(#[from] http::Error),
    /// TLS could not be configured.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The host is not a valid server name.
    #[error("{0}")]
    ServerName(#[from] rustls::pki_types::InvalidDnsNameError),
    /// The response has an error status.
    #[error("HTTP probe failed with statuscode: {0}")]
    Status(u16),
}

/// The target of a handler.
pub struct HandlerTarget<'a> {
    /// The kubelet's shared state.
    pub kubelet: &'a KubeletContext,
    /// The container's spec.
    pub container: &'a Container,
    /// The container's id.
    pub id: &'a str,
    /// The pod's IP.
    pub ip: &'a str,
    /// Timeout of the action.
    pub timeout: Duration,
}

impl HandlerTarget<'_> {
    /// Runs a command in the container; the error is its output.
    pub async fn run_exec(&self, action: &ExecAction) -> Result<(), HandlerError> {
        let command = action.command.clone().unwrap_or_default();
        match self.kubelet.cri.exec_sync(self.id, command, self.timeout).await {
            Ok(response) if response.exit_code == 0 => Ok(()),
            Ok(response) => {
                let output = [response.stdout, response.stderr].concat();
                let output = &output[..output.len().min(MAX_RESPONSE_BODY)];
                Err(HandlerError::Command(String::from_utf8_lossy(output).into_owned()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens and closes a TCP connection.
    pub async fn check_tcp(&self, action: &TCPSocketAction) -> Result<(), HandlerError> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(self.ip);
        let port = self.resolve_port(&action.port)?;
        self.with_timeout(async { Ok(TcpStream::connect((host, port)).await.map(drop)?) }).await
    }

    /// Sends an HTTP GET; status 200 through 399 is a success.
    pub async fn check_http(&self, action: &HTTPGetAction) -> Result<(), HandlerError> {
        let status = self.with_timeout(self.send_http_get(action)).await?;
        if (200..400).contains(&status) { Ok(()) } else { Err(HandlerError::Status(status)) }
    }

    async fn with_timeout<T>(&self, action: impl Future<Output = Result<T, HandlerError>>) -> Result<T, HandlerError> {
        tokio::time::timeout(self.timeout, action).await.unwrap_or(Err(HandlerError::Timeout))
    }

    async fn send_http_get(&self, action: &HTTPGetAction) -> Result<u16, HandlerError> {
        let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(self.ip);
        let port = self.resolve_port(&action.port)?;
        let stream = TcpStream::connect((host, port)).await.map_err(|source| HandlerError::Dial {
            host: host.into(),
            port,
            source,
        })?;
        let path = action.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let mut request = http::Request::get(path).header("User-Agent", "kube-probe/1.36").header("Accept", "*/*");
        let headers = action.http_headers.as_deref().unwrap_or_default();
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("host")) {
            request = request.header("Host", format!("{host}:{port}"));
        }
        for header in headers {
            request = request.header(&header.name, &header.value);
        }
        let request = request.body(Empty::<Bytes>::new())?;
        if action.scheme.as_deref() == Some("HTTPS") {
            return send_request(connect_tls(stream, host).await?, request).await;
        }
        send_request(stream, request).await
    }

    fn resolve_port(&self, port: &IntOrString) -> Result<u16, HandlerError> {
        let number = match port {
            IntOrString::Int(number) => Some(*number),
            IntOrString::String(name) => {
                let mut ports = self.container.ports.iter().flatten();
                let named = ports.find(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port);
                named.or_else(|| name.parse().ok())
            }
        };
        number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| HandlerError::Port(port.clone()))
    }
}

async fn send_request(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::Request<Empty<Bytes>>,
) -> Result<u16, HandlerError> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection task ends when the sender and the response are dropped.
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    // Only the status matters; an oversized or broken body is ignored.
    let _ = Limited::new(response.into_body(), MAX_RESPONSE_BODY).collect().await;
    Ok(status)
}

async fn connect_tls(
    stream: TcpStream,
    host: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, HandlerError> {
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
