//! Sends malformed requests and tells how each ended.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::Mutex,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{case::Case, http1, request::Ask};

/// Timeout of a response or close on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Delay before the client closes its side of a malformed request.
const PAUSE: Duration = Duration::from_millis(400);
/// Maximum number of bytes read; watches do not end by themselves.
const READ: Duration = Duration::from_millis(300);

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Status(u16),
    /// With the connection, or its stream.
    Ended,
    /// Not at all.
    Hangs,
}

/// A connection of any kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Sender = http2::SendRequest<Full<Bytes>>;

/// A client that can open connections.
pub struct Attacker {
    port: u16,
    http2: Arc<ClientConfig>,
    http1: Arc<ClientConfig>,
    shared: Mutex<Option<Sender>>,
}

impl Attacker {
    /// Connects to a port of loopback, in either way.
    pub fn new(port: u16, http2: Arc<ClientConfig>, http1: Arc<ClientConfig>) -> Self {
        Self { port, http2, http1, shared: Mutex::default() }
    }

    /// Sends a case and waits for how it ends.
    pub async fn send(&self, case: &Case) -> Outcome {
        match case {
            Case::Request(ask) => self.request(ask).await,
            Case::Text(text) => self.raw(Some("http/1.1"), text).await,
            Case::Frames(frames) => self.raw(Some("h2"), frames).await,
            Case::Bytes(bytes) => self.raw(None, bytes).await,
        }
    }

    /// Forgets the shared connection.
    pub async fn disconnect(&self) {
        self.shared.lock().await.take();
    }

    /// A connection; `None`: without TLS.
    pub async fn connect(&self, protocol: Option<&str>) -> std::io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let tls = match protocol {
            None => return Ok(Box::new(stream)),
            Some("h2") => &self.http2,
            Some(_) => &self.http1,
        };
        let name = ServerName::try_from("localhost").expect("a name");
        Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
    }

    async fn sender(&self) -> Sender {
        let mut shared = self.shared.lock().await;
        if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed()) {
            return sender.clone();
        }
        let stream = self.connect(Some("h2")).await.expect("the server takes connections");
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .max_send_buf_size(4 << 20)
            .handshake(TokioIo::new(stream))
            .await
            .expect("the server speaks HTTP/2");
        tokio::spawn(connection);
        shared.insert(sender).clone()
    }

    async fn request(&self, ask: &Ask) -> Outcome {
        let Some(request) = ask.http() else {
            return self.raw(Some("http/1.1"), &http1::text(ask)).await;
        };
        let mut sender = self.sender().await;
        match timeout(PATIENCE, sender.send_request(request)).await {
            Err(_) => Outcome::Hangs,
            Ok(Err(_)) => Outcome::Ended,
            Ok(Ok(response)) => {
                let status = response.status().as_u16();
                // How much of it comes does not matter; that it does not end is a watch.
                let _ = timeout(READ, response.into_body().collect()).await;
                Outcome::Status(status)
            }
        }
    }

    async fn raw(&self, protocol: Option<&str>, bytes: &[u8]) -> Outcome {
        let Ok(mut stream) = self.connect(protocol).await else { return Outcome::Ended };
        let mut answer = Vec::new();
        let exchange = async {
            write(&mut stream, bytes).await;
            let answered = timeout(PAUSE, first(&mut stream, &mut answer)).await.is_ok();
            // There is nothing more to come from this side; a server that waits for it must notice.
            let _ = stream.shutdown().await;
            if !answered {
                first(&mut stream, &mut answer).await;
            }
        };
        if timeout(PATIENCE, exchange).await.is_err() {
            return Outcome::Hangs;
        }
        status(&answer).map_or(Outcome::Ended, Outcome::Status)
    }
}

/// Writes as much as the server takes; it may have had enough before the end.
pub async fn write(stream: &mut Box<dyn Stream>, bytes: &[u8]) {
    // A server that no longer reads has ended the exchange.
    let _ = timeout(PATIENCE, stream.write_all(bytes)).await;
    let _ = stream.flush().await;
}

/// Reads until there is an HTTP/1.1 status, or the end.
async fn first(stream: &mut Box<dyn Stream>, answer: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while status(answer).is_none() {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
        }
        answer.truncate(1 << 16);
    }
}

/// The status of an answer in HTTP/1.1 that is final.
fn status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.split("\r\n").filter_map(|line| line.strip_prefix("HTTP/1."));
    lines.filter_map(|line| line.get(2..5)?.parse().ok()).find(|status| *status >= 200)
}
