//! Watches over WebSocket: an event is a message, text for JSON and bytes for protobuf.
//!
//! Browsers cannot read an answer that goes on without end; this is how they watch. What a client says meanwhile is read
//! and dropped; when it closes, the watch ends.

use api::status::Status;
use apiserver_core::{
    Body,
    negotiation::{ResponseEncoding, MediaTypeOptions},
    request::ResourceRequest,
};
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response};
use streaming::{websocket::{self, Socket}};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

use super::open_stream;
use crate::Server;

/// Whether a watch is asked for over WebSocket.
pub fn is_requested(headers: &HeaderMap) -> bool {
    websocket::is_handshake(headers)
}

/// Agrees to the handshake, and watches on the connection that follows.
pub async fn handle_websocket_watch(
    server: &Server,
    target: ResourceRequest,
    form: MediaTypeOptions,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let mut pieces = open_stream(server, target, form).await?;
    let (response, upgrade) = websocket::accept(&mut request, "")?;
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = websocket::socket(upgraded).await;
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
        // Whoever is gone does not hear the good-bye.
        let _ = socket.close(None).await;
    });
    Ok(response)
}

async fn send_chunk(socket: &mut Socket, encoding: ResponseEncoding, piece: Bytes) -> Result<(), Error> {
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
        // What we write is UTF-8.
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
