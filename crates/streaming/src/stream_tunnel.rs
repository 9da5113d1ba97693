//! SPDY tunnelled through WebSocket, for port-forward. Messages carry the bytes of a SPDY connection to the kubelet.

use api::status::Status;
use apiserver_core::{Body, BodyError, backend::Backend, body::full_body};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::{backend_error, upgrade_proxy, websocket, websocket::WebSocketConnection};

const PREFIX: &str = "SPDY/3.1+";
const SUFFIX: &str = ".k8s.io";
const SPDY: &str = "SPDY/3.1";
const VERSION: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Read size, and so the largest message.
const BUFFER: usize = 32 << 10;

fn is_tunnel_protocol(protocol: &str) -> bool {
    protocol.starts_with(PREFIX) && protocol.ends_with(SUFFIX)
}

/// Whether a request asks for a tunnel.
pub fn is_tunnel_request(headers: &HeaderMap) -> bool {
    websocket::offers_protocol(headers, is_tunnel_protocol)
}

/// Opens the SPDY connection to the kubelet, then the tunnel.
pub async fn tunnel_port_forward(
    stopping: &CancellationToken,
    kubelet: &Backend,
    path: &str,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let passed = spdy_request(kubelet, path, &request)?;
    let mut answer =
        kubelet.send_request(passed).await.map_err(|error| backend_error(format!("error dialing backend: {error}")))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer.map(|body| body.map_err(BodyError::new).boxed_unsync()));
    }
    let text =
        |name| answer.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    if !text(header::UPGRADE).eq_ignore_ascii_case(SPDY) {
        return Err(backend_error("unable to upgrade: missing upgrade headers in response"));
    }
    let protocol = match text(VERSION) {
        "" => String::new(),
        version => format!("{PREFIX}{version}"),
    };
    let (response, client) = websocket::accept_handshake(&mut request, &protocol)?;
    let backend = hyper::upgrade::on(&mut answer);
    let stopping = stopping.clone();
    tokio::spawn(async move {
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => {
                let (socket, backend) = (websocket::open_web_socket(client).await, TokioIo::new(backend));
                stopping.run_until_cancelled(copy_tunnel(socket, backend)).await;
            }
            Err(error) => tracing::debug!(%error, "tunnel: client upgrade failed, closing the connection"),
        }
    });
    Ok(response)
}

fn spdy_request(kubelet: &Backend, path: &str, request: &Request<Body>) -> Result<Request<Body>, Status> {
    let mut headers = upgrade_proxy::forwarded_headers(request, kubelet);
    for protocol in websocket::offered_protocols(request.headers()).filter_map(|protocol| protocol.strip_prefix(PREFIX))
    {
        // The value was read from a header, so it is valid in one.
        if let Ok(value) = HeaderValue::from_str(protocol) {
            headers.append(VERSION, value);
        }
    }
    let own: Vec<HeaderName> = headers.keys().filter(|n| n.as_str().starts_with("sec-websocket-")).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    upgrade_proxy::remove_body_headers(&mut headers);
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    let mut passed = Request::new(full_body(""));
    *passed.method_mut() = Method::POST;
    *passed.uri_mut() = path.parse().map_err(|error| Status::bad_request(format!("{path:?} is no path: {error}")))?;
    *passed.headers_mut() = headers;
    upgrade_proxy::append_forwarded_for(&mut passed, request.extensions().get());
    Ok(passed)
}

/// Copies bytes both ways until either side ends.
async fn copy_tunnel<B>(socket: WebSocketConnection, backend: B)
where
    B: tokio::io::AsyncRead + AsyncWrite + Send,
{
    let (mut sink, mut source) = socket.split();
    let (mut reader, mut writer) = split(backend);
    let up = async {
        while let Some(Ok(message)) = source.next().await {
            let data: Bytes = match message {
                Message::Binary(data) => data,
                // Tunnels carry binary messages only.
                Message::Text(_) | Message::Close(_) => return,
                _ => continue,
            };
            if writer.write_all(&data).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
    };
    let down = async {
        let mut buffer = BytesMut::with_capacity(BUFFER);
        while let Ok(1..) = reader.read_buf(&mut buffer).await {
            if sink.send(Message::Binary(buffer.split().freeze())).await.is_err() {
                return;
            }
            buffer.reserve(BUFFER);
        }
        // The client may have closed the connection.
        let _ = sink.send(Message::Close(None)).await;
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}
