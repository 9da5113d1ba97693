//! The connection of port forwarding: SPDY, tunnelled through WebSocket where the server speaks it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::Message;
use transport::spdy::SpdyConnection;

use super::upgrade::{UpgradeFailure, WebSocketConnection, open_spdy, open_web_socket, with_fallback};
use crate::{
    errors::{CommandError, CommandResult},
    rest::{RestClient, RestRequest},
};

const PROTOCOL: &str = "portforward.k8s.io";

/// Opens the connection to a pod's `portforward`.
pub async fn open_tunnel(client: &RestClient, target: &RestRequest) -> CommandResult<SpdyConnection> {
    let websocket = async {
        let name = format!("SPDY/3.1+{PROTOCOL}");
        let (socket, chosen) = open_web_socket(client, target, &[&name]).await?;
        check_protocol(chosen.strip_prefix("SPDY/3.1+").unwrap_or(&chosen))?;
        Ok(SpdyConnection::start(MessageBytes { socket, rest: Bytes::new() }))
    };
    let spdy = async {
        let (transport, chosen) = open_spdy(client, target, &[PROTOCOL]).await?;
        check_protocol(&chosen)?;
        Ok(SpdyConnection::start(transport))
    };
    let opened = with_fallback("KUBECTL_PORT_FORWARD_WEBSOCKETS", websocket, spdy).await;
    opened.map_err(|error| match error {
        CommandError::Message(text) if text.starts_with("unable to negotiate protocol") => CommandError::Message(text),
        error => CommandError::new(format!("error upgrading connection: {error}")),
    })
}

fn check_protocol(chosen: &str) -> Result<(), UpgradeFailure> {
    if chosen == PROTOCOL {
        return Ok(());
    }
    Err(UpgradeFailure::Broken(CommandError::new(format!(
        "unable to negotiate protocol: client supports \"{PROTOCOL}\", server returned {}",
        api::json::go_quote(chosen)
    ))))
}

/// The bytes in the messages of a WebSocket.
struct MessageBytes {
    socket: WebSocketConnection,
    rest: Bytes,
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

impl AsyncRead for MessageBytes {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(data))) => self.rest = data,
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let count = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for MessageBytes {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(broken)?;
        let message = Message::Binary(Bytes::copy_from_slice(data));
        Pin::new(&mut self.socket).start_send(message).map_err(broken)?;
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(broken)
    }
}
