//! A response body over WebSocket: each chunk is a message, binary or base64.
//!
//! Browsers cannot read an endless response otherwise. The first message is empty and confirms the connection. Messages
//! of the client are dropped; reading stops when it closes.

use api::status::Status;
use apiserver_core::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use tokio_tungstenite::tungstenite::Message;

use crate::{websocket, websocket::WebSocketConnection};

/// The encoding of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkEncoding {
    Bytes,
    Base64,
}

impl ChunkEncoding {
    /// Returns the encoding of a subprotocol; `None` if it is unknown.
    fn from_protocol(protocol: &str) -> Option<Self> {
        match protocol {
            "" | "binary.k8s.io" => Some(Self::Bytes),
            "base64.binary.k8s.io" => Some(Self::Base64),
            _ => None,
        }
    }

    fn encode_chunk(self, piece: Bytes) -> Message {
        match self {
            Self::Bytes => Message::Binary(piece),
            Self::Base64 => Message::text(BASE64_STANDARD.encode(piece)),
        }
    }
}

/// Accepts a handshake and sends the response body on the connection.
pub fn stream_response(mut request: Request<Body>, answer: Response<Body>) -> Result<Response<Body>, Status> {
    let wanted: Vec<String> = websocket::offered_protocols(request.headers()).map(str::to_owned).collect();
    let none = String::new();
    let chosen = if wanted.is_empty() {
        Some(&none)
    } else {
        wanted.iter().find(|name| ChunkEncoding::from_protocol(name).is_some())
    };
    let (Some(protocol), Some(form)) = (chosen, chosen.and_then(|name| ChunkEncoding::from_protocol(name))) else {
        return Err(Status::bad_request("websocket: protocols are binary.k8s.io and base64.binary.k8s.io"));
    };
    let (response, upgrade) = websocket::accept_handshake(&mut request, protocol)?;
    tokio::spawn(async move {
        let Ok(upgraded) = upgrade.await else { return };
        let mut socket = websocket::open_web_socket(upgraded).await;
        // The client may have disconnected.
        let _ = send_chunks(&mut socket, form, answer.into_body()).await;
        let _ = socket.close(None).await;
    });
    Ok(response)
}

async fn send_chunks(
    socket: &mut WebSocketConnection,
    form: ChunkEncoding,
    mut body: Body,
) -> Result<(), Box<tokio_tungstenite::tungstenite::Error>> {
    socket.send(form.encode_chunk(Bytes::new())).await?;
    loop {
        tokio::select! {
            frame = body.frame() => match frame {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        socket.send(form.encode_chunk(piece)).await?;
                    }
                }
                Some(Err(_)) | None => return Ok(()),
            },
            // Reading answers pings.
            heard = socket.next() => if !matches!(heard, Some(Ok(_))) { return Ok(()) },
        }
    }
}
