//! A client on one HTTP/2 connection that reads answers whole and decodes nothing.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Large enough that the client never makes the server wait.
const WINDOW: u32 = 8 << 20;

/// One connection. Clones share it.
#[derive(Clone)]
pub struct BenchClient {
    sender: http2::SendRequest<Full<Bytes>>,
    port: u16,
    tls: Arc<ClientConfig>,
    encoding: &'static str,
}

/// A response.
pub struct BenchResponse {
    /// The status.
    pub status: u16,
    /// The body as it came.
    pub body: Bytes,
}

/// A request to send.
pub struct BenchRequest<'a> {
    /// The method.
    pub method: Method,
    /// To what.
    pub path: &'a str,
    /// The type of the body and of the answer.
    pub media: &'a str,
    /// The body.
    pub body: Bytes,
}

impl BenchClient {
    /// Connects to a port of loopback.
    pub async fn connect(port: u16, tls: &Arc<ClientConfig>) -> anyhow::Result<Self> {
        let sender = open_connection(port, tls).await?;
        Ok(Self { sender, port, tls: tls.clone(), encoding: "gzip" })
    }

    /// Asks for answers as they are from now on, not compressed.
    pub fn uncompressed(self) -> Self {
        Self { encoding: "identity", ..self }
    }

    /// Reads a path.
    pub async fn get(&mut self, path: &str, media: &str) -> anyhow::Result<BenchResponse> {
        self.call(BenchRequest { method: Method::GET, path, media, body: Bytes::new() }).await
    }

    /// Sends a request and reads the answer whole.
    pub async fn call(&mut self, call: BenchRequest<'_>) -> anyhow::Result<BenchResponse> {
        let (status, body) = self.open(call).await?;
        Ok(BenchResponse { status, body: body.collect().await.context("the answer broke off")?.to_bytes() })
    }

    /// Sends a request whose body has another type than the answer, and reads the answer whole.
    pub async fn send(&mut self, call: BenchRequest<'_>, accept: &str) -> anyhow::Result<BenchResponse> {
        let (status, body) = self.open_as(call, accept).await?;
        Ok(BenchResponse { status, body: body.collect().await.context("the answer broke off")?.to_bytes() })
    }

    /// Sends a request and hands out the answer as it comes.
    pub async fn open(&mut self, call: BenchRequest<'_>) -> anyhow::Result<(u16, Incoming)> {
        let accept = call.media;
        self.open_as(call, accept).await
    }

    async fn open_as(&mut self, call: BenchRequest<'_>, accept: &str) -> anyhow::Result<(u16, Incoming)> {
        let request = Request::builder()
            .method(call.method)
            .uri(format!("https://localhost:{}{}", self.port, call.path))
            .header(header::ACCEPT, accept)
            .header(header::ACCEPT_ENCODING, self.encoding)
            .header(header::CONTENT_TYPE, call.media)
            .header(header::USER_AGENT, "bench-api/1")
            .body(Full::new(call.body))?;
        if self.sender.ready().await.is_err() {
            // The server ended the connection; nothing was sent on it.
            self.sender = open_connection(self.port, &self.tls).await?;
            self.sender.ready().await.context("the connection ended")?;
        }
        let response = self.sender.send_request(request).await.context("no answer")?;
        Ok((response.status().as_u16(), response.into_body()))
    }
}

async fn open_connection(port: u16, tls: &Arc<ClientConfig>) -> anyhow::Result<http2::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("localhost")?;
    let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move {
        // A pending request reports its end.
        let _ = connection.await;
    });
    Ok(sender)
}
