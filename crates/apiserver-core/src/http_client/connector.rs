//! Opens the connections of an [`HttpClient`](super::HttpClient): TCP, then TLS for `https`.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Uri, uri::Scheme};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;

use crate::{
    backend::{BackendError, CONNECT_TIMEOUT, connect_tcp, connect_tls, join_host_port},
    services::{ResolveError, ServiceResolver},
};

/// The server that the host of a URL stands for.
#[derive(Clone)]
pub enum Dialer {
    /// The host itself, an address or a DNS name.
    Host,
    /// An address of a server whose certificate has this name.
    ServerName(Arc<str>),
    /// A Service, written `name.namespace.svc`; the endpoints are tried in random order.
    Service(Arc<ServiceResolver>),
}

/// Connects to the server of a request URL.
#[derive(Clone)]
pub struct Connector {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) dialer: Dialer,
}

type ConnectedStream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl tower::Service<Uri> for Connector {
    type Response = ConnectedStream;
    type Error = BackendError;
    type Future = Pin<Box<dyn Future<Output = Result<ConnectedStream, BackendError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let is_tls = url.scheme() != Some(&Scheme::HTTP);
            let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
            let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
            let timed_out =
                |_| BackendError::Connect { address: join_host_port(host, port), reason: "i/o timeout".into() };
            let connected = connector.connect(host, port, is_tls);
            tokio::time::timeout(CONNECT_TIMEOUT, connected).await.map_err(timed_out)?
        })
    }
}

impl Connector {
    async fn connect(&self, host: &str, port: u16, is_tls: bool) -> Result<ConnectedStream, BackendError> {
        let stream = match &self.dialer {
            Dialer::Service(services) => connect_service(services, host, port).await?,
            Dialer::Host | Dialer::ServerName(_) => connect_tcp(host, port).await?,
        };
        let stream = TokioIo::new(stream);
        if !is_tls {
            return Ok(stream.into());
        }
        let name = if let Dialer::ServerName(name) = &self.dialer { name } else { host };
        Ok(connect_tls(&self.tls, name, TokioIo::new(stream)).await?.into())
    }
}

/// Connects to the first endpoint of a Service that accepts a connection.
async fn connect_service(services: &ServiceResolver, host: &str, port: u16) -> Result<TcpStream, BackendError> {
    let (name, namespace) = host.trim_end_matches(".svc").split_once('.').unwrap_or((host, ""));
    let (addresses, port) = services.resolve_endpoints(namespace, name, port).await?;
    let mut failure = ResolveError::NoEndpoints(name.to_owned()).into();
    for address in &addresses {
        match connect_tcp(address, port).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
