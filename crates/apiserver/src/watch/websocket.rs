//! Watches over WebSocket: an event is a message, text for JSON and bytes for protobuf.
//!
//! For browsers, which cannot read unbounded responses. Messages of the client are discarded; when it closes the
//! connection, the watch ends.

use api::status::Status;
use apiserver_core::{
    Body,
    negotiation::{MediaTypeOptions, ResponseEncoding},
    request::ResourceRequest,
};
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response};
use streaming::websocket::{self, WebSocketConnection};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::open_stream;
use crate::Server;

/// Whether the request is a WebSocket handshake.
pub fn is_requested(headers: &HeaderMap) -> bool {
    websocket::is_handshake(headers)
}

/// Accepts the handshake and sends the watch on the upgraded connection.
pub async fn handle_websocket_watch(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let mut pieces = open_stream(server, target, form).await?;
    let (response, upgrade) = websocket::accept_handshake(&mut request, "")?;
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = websocket::open_web_socket(upgraded).await;
        loop {
            tokio::select! {
                piece = pieces.next() => {
                    let Some(piece) = piece else { break };
                    if send_chunk(&mut socket, form.encoding, piece).await.is_err() {
                        break;
                    }
                }
                // Pings are answered by reading.
                heard = socket.next() => if !matches!(heard, Some(Ok(_))) { break },
            }
        }
        // The close frame fails if the client is gone.
        let _ = socket.close(None).await;
    });
    Ok(response)
}

async fn send_chunk(socket: &mut WebSocketConnection, encoding: ResponseEncoding, piece: Bytes) -> Result<(), Error> {
    for message in split_messages(encoding, piece) {
        socket.feed(message).await?;
    }
    socket.flush().await
}

/// The events of a piece: lines of JSON, or frames of protobuf without their length.
fn split_messages(encoding: ResponseEncoding, mut piece: Bytes) -> Vec<Message> {
    let mut messages = Vec::new();
    while !piece.is_empty() {
        if encoding == ResponseEncoding::Protobuf {
            let Ok(length) = piece.try_get_u32() else { break };
            let length = (length as usize).min(piece.len());
            messages.push(Message::Binary(piece.split_to(length)));
            continue;
        }
        let end = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |at| at + 1);
        // Events are always UTF-8.
        if let Ok(line) = Utf8Bytes::try_from(piece.split_to(end)) {
            messages.push(Message::Text(line));
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_one_message() {
        let lines = split_messages(ResponseEncoding::Json, Bytes::from_static(b"{\"a\":1}\n{}\n"));
        assert_eq!(lines, [Message::text("{\"a\":1}\n"), Message::text("{}\n")]);
        let frames = split_messages(ResponseEncoding::Protobuf, Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c"));
        assert_eq!(frames, [Message::binary(&b"ab"[..]), Message::binary(&b"c"[..])]);
        assert_eq!(split_messages(ResponseEncoding::Protobuf, Bytes::from_static(b"\0\0")), []);
    }
}
