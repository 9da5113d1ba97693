//! Connections: TCP, proxies, TLS, and HTTP/1.1 or HTTP/2 on top.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::tls::{TlsSettings, handshake_error};
use crate::{
    errors::{CommandError, CommandResult},
    files::os_error,
    kubeconfig::ClientSettings,
};

/// A connection that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DialError(pub String);

/// Makes connections to one server.
#[derive(Debug)]
pub struct Dialer {
    tls: Option<TlsSettings>,
    host: String,
    port: u16,
    server_name: String,
    proxy: Option<http::Uri>,
    /// Why the URL cannot be dialled.
    unsupported: Option<String>,
}

/// A connection with HTTP.
#[derive(Debug)]
pub enum ClientConnection {
    /// HTTP/1.1
    Http1(http1::SendRequest<Full<Bytes>>),
    /// HTTP/2
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl ClientConnection {
    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        match self {
            ClientConnection::Http1(sender) => sender.is_closed(),
            ClientConnection::Http2(sender) => sender.is_closed(),
        }
    }

    /// Whether a request can be sent now.
    pub fn is_ready(&self) -> bool {
        match self {
            ClientConnection::Http1(sender) => sender.is_ready(),
            ClientConnection::Http2(sender) => sender.is_ready(),
        }
    }

    /// Sends a request. HTTP/1.1 names the server in a header.
    pub async fn send(
        &mut self,
        mut request: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        match self {
            ClientConnection::Http1(sender) => {
                let uri = request.uri().clone();
                if let Some(authority) = uri.authority()
                    && let Ok(value) = authority.as_str().parse()
                {
                    request.headers_mut().entry(http::header::HOST).or_insert(value);
                }
                if let Some(target) = uri.path_and_query() {
                    *request.uri_mut() = http::Uri::from(target.clone());
                }
                sender.ready().await?;
                sender.send_request(request).await
            }
            ClientConnection::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl Dialer {
    /// A dialer for the server of the settings.
    pub fn new(settings: &ClientSettings) -> CommandResult<Self> {
        let invalid = || CommandError::new(format!("invalid server URL {}", api::json::go_quote(&settings.host)));
        let uri: http::Uri = settings.host.parse().map_err(|_| invalid())?;
        let host = uri.host().ok_or_else(invalid)?.trim_matches(['[', ']']).to_owned();
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = if secure { Some(TlsSettings::new(settings)?) } else { None };
        let server_name = if settings.server_name.is_empty() { host.clone() } else { settings.server_name.clone() };
        let proxy = proxy_for(settings, &host, secure);
        let scheme = uri.scheme_str().unwrap_or("http");
        let unsupported = (!["http", "https"].contains(&scheme))
            .then(|| format!("unsupported protocol scheme {}", api::json::go_quote(scheme)));
        Ok(Dialer { tls, host, port, server_name, proxy, unsupported })
    }

    /// Connects; an upgrade wants HTTP/1.1.
    pub async fn connect(&self, http1_only: bool) -> Result<ClientConnection, DialError> {
        if let Some(error) = &self.unsupported {
            return Err(DialError(error.clone()));
        }
        if let Some(error) = self.tls.as_ref().and_then(|tls| tls.key_error.clone()) {
            return Err(DialError(error));
        }
        let stream = match &self.proxy {
            Some(proxy) => self.connect_through(proxy).await?,
            None => dial(&self.host, self.port).await?,
        };
        let Some(tls) = &self.tls else { return handshake_http1(stream).await };
        let config = if http1_only { tls.http1.clone() } else { tls.any.clone() };
        let name = ServerName::try_from(self.server_name.clone())
            .map_err(|error| DialError(format!("tls: invalid server name: {error}")))?;
        let secure = TlsConnector::from(config).connect(name, stream).await;
        let secure = secure.map_err(|error| DialError(handshake_error(&error)))?;
        if secure.get_ref().1.alpn_protocol() == Some(b"h2") {
            let builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) =
                builder.handshake(TokioIo::new(secure)).await.map_err(|error| DialError(error.to_string()))?;
            tokio::spawn(connection);
            return Ok(ClientConnection::Http2(sender));
        }
        handshake_http1(secure).await
    }

    async fn connect_through(&self, proxy: &http::Uri) -> Result<TcpStream, DialError> {
        let host = proxy.host().unwrap_or_default();
        let mut stream = dial(host, proxy.port_u16().unwrap_or(80)).await?;
        let target = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let credentials = proxy.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        let authorization = credentials
            .map(|(user, _)| format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(user)))
            .unwrap_or_default();
        let greeting = format!("CONNECT {target}:{0} HTTP/1.1\r\nHost: {target}:{0}\r\n{authorization}\r\n", self.port);
        let broken = |error: std::io::Error| DialError(format!("proxyconnect tcp: {}", os_error(&error)));
        stream.write_all(greeting.as_bytes()).await.map_err(broken)?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") && answer.len() < 16 << 10 {
            answer.push(stream.read_u8().await.map_err(broken)?);
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.lines().next().and_then(|line| line.split_once(' ')).map_or("", |(_, status)| status);
        if status.starts_with("200") { Ok(stream) } else { Err(DialError(status.to_owned())) }
    }
}

async fn dial(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let limited = tokio::time::timeout(Duration::from_secs(30), TcpStream::connect((host, port))).await;
    let address = resolved(host, port);
    match limited {
        Ok(Ok(stream)) => {
            // Small requests go out at once; without it they only wait longer.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(error)) if error.to_string().contains("lookup") => {
            Err(DialError(format!("dial tcp: lookup {host}: no such host")))
        }
        Ok(Err(error)) => Err(DialError(format!("dial tcp {address}: connect: {}", os_error(&error)))),
        Err(_) => Err(DialError(format!("dial tcp {address}: i/o timeout"))),
    }
}

/// The address that Go names in errors: the first that the name resolves to.
fn resolved(host: &str, port: u16) -> String {
    use std::net::ToSocketAddrs;
    let addresses: Vec<_> = (host, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let chosen = addresses.iter().find(|address: &&std::net::SocketAddr| address.is_ipv4()).or(addresses.first());
    chosen.map_or_else(|| format!("{host}:{port}"), ToString::to_string)
}

async fn handshake_http1(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<ClientConnection, DialError> {
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| DialError(error.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    Ok(ClientConnection::Http1(sender))
}

/// The proxy of the cluster entry or of the environment.
fn proxy_for(settings: &ClientSettings, host: &str, secure: bool) -> Option<http::Uri> {
    if !settings.proxy_url.is_empty() {
        return settings.proxy_url.parse().ok();
    }
    let variable =
        |names: [&str; 2]| names.iter().find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    let local = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if local || is_excluded(host, &variable(["NO_PROXY", "no_proxy"]).unwrap_or_default()) {
        return None;
    }
    let names = if secure { ["HTTPS_PROXY", "https_proxy"] } else { ["HTTP_PROXY", "http_proxy"] };
    let proxy = variable(names)?;
    if proxy.contains("://") { proxy.parse().ok() } else { format!("http://{proxy}").parse().ok() }
}

fn is_excluded(host: &str, list: &str) -> bool {
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let suffix = entry.trim_start_matches("*.").trim_start_matches('.');
        entry == "*" || host == suffix || host.ends_with(&format!(".{suffix}"))
    })
}
