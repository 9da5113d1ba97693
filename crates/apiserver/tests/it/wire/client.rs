//! A client on one HTTP/2 connection; clones share the connection.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{net::TcpStream, task::AbortHandle};
use tokio_rustls::TlsConnector;

/// The content type of most requests.
pub const JSON: &str = "application/json";
/// Large enough that the client never makes the server wait.
const WINDOW: u32 = 4 << 20;

/// A transport error; tests only print it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// One connection.
#[derive(Clone)]
pub struct Client {
    sender: http2::SendRequest<Full<Bytes>>,
    driver: AbortHandle,
    port: u16,
    /// Headers of every request.
    headers: HeaderMap,
}

/// A request to send.
#[derive(Clone)]
pub struct Call<'a> {
    /// The request.
    pub method: Method,
    /// To what, with the query.
    pub path: &'a str,
    /// The type of the body.
    pub content_type: &'a str,
    /// The type of the answer.
    pub accept: &'a str,
    /// The body.
    pub body: Bytes,
}

/// The response.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null when it is not JSON.
    pub body: Value,
}

impl Client {
    /// Connects to a port of loopback.
    pub async fn connect(port: u16, tls: &Arc<ClientConfig>) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(tls.clone()).connect(ServerName::try_from("localhost")?, stream).await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(4 * WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        let driver = tokio::spawn(async move {
            // How it ends is seen by whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(Self { sender, driver: driver.abort_handle(), port, headers: HeaderMap::new() })
    }

    /// The same connection, with a header in every request.
    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.append(name, value.parse().expect("a header"));
        client
    }

    /// Whether the server has asked to be left alone.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Cuts the connection as a pulled cable does: nothing more is sent, and everybody on it is told by an error.
    pub fn cut(&self) {
        self.driver.abort();
    }

    /// Sends a request and hands out the answer as it comes.
    pub async fn open(&self, call: Call<'_>) -> Result<http::Response<Incoming>, Error> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("https://localhost:{}{}", self.port, call.path))
            .header(header::ACCEPT, call.accept)
            .header(header::CONTENT_TYPE, call.content_type)
            .header(header::USER_AGENT, "test/1")
            .body(Full::new(call.body))?;
        request.headers_mut().extend(self.headers.clone());
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    /// Sends a request and reads the answer whole.
    pub async fn call(&self, call: Call<'_>) -> Result<Answer, Error> {
        let (parts, body) = self.open(call).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends JSON (null: nothing) and reads JSON.
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let call = Call { method, path, content_type, accept: JSON, body };
        let answer = self.call(call).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        (answer.status, answer.body)
    }

    /// Reads.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, JSON, &Value::Null).await
    }

    /// Creates.
    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, path, JSON, body).await
    }

    /// Replaces.
    pub async fn put(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::PUT, path, JSON, body).await
    }

    /// Deletes.
    pub async fn delete(&self, path: &str) -> (u16, Value) {
        self.send(Method::DELETE, path, JSON, &Value::Null).await
    }
}
