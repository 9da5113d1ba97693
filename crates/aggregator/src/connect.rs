//! Connections to aggregated servers: to an endpoint address, verified by the DNS name of the service.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use apiserver_core::backend::{self, BackendError};
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Timeout of TCP connect and TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to the address of a request URL.
#[derive(Clone)]
pub struct ServiceConnector {
    /// CA bundle and client certificate.
    pub tls: Arc<ClientConfig>,
    /// The expected name of the server certificate.
    pub name: Arc<str>,
}

impl tower::Service<Uri> for ServiceConnector {
    type Response = ConnectedStream;
    type Error = BackendError;
    type Future = BoxFuture<'static, Result<ConnectedStream, BackendError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Self { tls, name } = self.clone();
        Box::pin(async move {
            let (host, port) = (to.host().unwrap_or_default().trim_matches(['[', ']']), to.port_u16().unwrap_or(443));
            let connected = async { backend::connect_tls(&tls, &name, backend::connect_tcp(host, port).await?).await };
            let late = |_| BackendError::Connect {
                address: backend::join_host_port(host, port),
                reason: "i/o timeout".into(),
            };
            let stream = tokio::time::timeout(CONNECT_TIMEOUT, connected).await.map_err(late)??;
            Ok(ConnectedStream(TokioIo::new(stream)))
        })
    }
}

/// A TLS connection.
pub struct ConnectedStream(TokioIo<TlsStream<TcpStream>>);

impl Connection for ConnectedStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for ConnectedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for ConnectedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
