//! The server's side of a WebSocket with channels: each message begins with the number of its channel.

use std::collections::HashMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::mpsc,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use super::client_stream::{ClientStream, StreamFraming};

/// Messages that wait for a stream or for the connection.
const WAITING: usize = 64;
/// The channel of errors and of the exit code.
const ERROR_CHANNEL: u32 = 3;
/// The channel number with which version 5 ends another one.
const CLOSE_CHANNEL: u8 = 255;
/// Protocols of commands, the best first, and the version that each carries.
const COMMAND_PROTOCOLS: [(&str, &str); 6] = [
    ("v5.channel.k8s.io", "v4.channel.k8s.io"),
    ("v4.channel.k8s.io", "v4.channel.k8s.io"),
    ("v4.base64.channel.k8s.io", "v4.channel.k8s.io"),
    ("channel.k8s.io", "channel.k8s.io"),
    ("base64.channel.k8s.io", "channel.k8s.io"),
    ("", "channel.k8s.io"),
];
/// Protocols of port-forward.
const PORT_PROTOCOLS: [(&str, &str); 4] =
    [(TUNNEL_PROTOCOL, ""), ("v4.channel.k8s.io", ""), ("v4.base64.channel.k8s.io", ""), ("", "")];
/// The protocol whose messages are the bytes of a SPDY connection.
const TUNNEL_PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";
/// Bytes of a tunnel that wait.
const TUNNEL_BUFFER: usize = 64 << 10;

/// A protocol that both sides know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelProtocol {
    /// Its name in the handshake; empty if the client named none.
    pub name: &'static str,
    /// The version of the streams' content.
    pub version: &'static str,
}

impl ChannelProtocol {
    /// Whether messages are the bytes of a SPDY connection.
    pub fn is_tunnel(self) -> bool {
        self.name == TUNNEL_PROTOCOL
    }

    fn is_base64(self) -> bool {
        self.name.contains("base64")
    }
}

/// Whether a client asks for a WebSocket.
pub fn is_handshake(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Chooses the protocol; none if the client knows no other than foreign ones.
pub fn choose_protocol(headers: &HeaderMap, is_port_forward: bool) -> Option<ChannelProtocol> {
    let known: &[(&str, &str)] = if is_port_forward { &PORT_PROTOCOLS } else { &COMMAND_PROTOCOLS };
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut offered: Vec<&str> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    if offered.is_empty() {
        offered.push("");
    }
    let chosen = known.iter().find(|(name, _)| offered.contains(name));
    chosen.map(|&(name, version)| ChannelProtocol { name, version })
}

/// The headers of the answer to a handshake; none if it is not valid.
pub fn handshake_headers(request: &HeaderMap, protocol: ChannelProtocol) -> Option<HeaderMap> {
    let key = request.get(header::SEC_WEBSOCKET_KEY)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    let accepted = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()?;
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    if !protocol.name.is_empty() {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol.name));
    }
    Some(headers)
}

/// Serves the channels of a command: those that are `wanted` of stdin, stdout and stderr.
pub async fn serve_command(
    upgraded: Upgraded,
    protocol: ChannelProtocol,
    wanted: [bool; 3],
    tty: bool,
) -> mpsc::Receiver<ClientStream> {
    let has_resize = tty && protocol.version == "v4.channel.k8s.io";
    let names = ["stdin", "stdout", "stderr", "error", "resize"];
    let opened = [wanted[0], wanted[1], wanted[2], true, has_resize];
    let channels: Vec<(u32, Vec<(String, String)>)> = (0..)
        .zip(names)
        .zip(opened)
        .filter(|(_, is_open)| *is_open)
        .map(|((number, name), _)| (number, vec![("streamtype".to_owned(), name.to_owned())]))
        .collect();
    let first = if wanted[1] {
        1
    } else if wanted[2] {
        2
    } else {
        ERROR_CHANNEL
    };
    let framing = StreamFraming::WebSocket { base64: protocol.is_base64(), closing_channel: Some(ERROR_CHANNEL) };
    // Clients wait for an empty message before they send.
    serve_channels(upgraded, channels, framing, vec![(first, Vec::new())]).await
}

/// Serves a pair of channels for each port.
pub async fn serve_ports(upgraded: Upgraded, protocol: ChannelProtocol, ports: &[i32]) -> mpsc::Receiver<ClientStream> {
    let (mut channels, mut greetings) = (Vec::new(), Vec::new());
    for (index, port) in (0u32..).zip(ports.iter().take(100)) {
        for (number, kind) in [(2 * index, "data"), (2 * index + 1, "error")] {
            let pair = |name: &str, value: String| (name.to_owned(), value);
            let id = pair("requestid", index.to_string());
            channels.push((number, vec![pair("streamtype", kind.into()), pair("port", port.to_string()), id]));
            greetings.push((number, (*port as u16).to_le_bytes().to_vec()));
        }
    }
    let framing = StreamFraming::WebSocket { base64: protocol.is_base64(), closing_channel: None };
    serve_channels(upgraded, channels, framing, greetings).await
}

async fn serve_channels(
    upgraded: Upgraded,
    channels: Vec<(u32, Vec<(String, String)>)>,
    framing: StreamFraming,
    greetings: Vec<(u32, Vec<u8>)>,
) -> mpsc::Receiver<ClientStream> {
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (mut sink, mut source) = socket.split();
    let (frames, mut outgoing) = mpsc::channel::<Bytes>(WAITING);
    let (opener, opened) = mpsc::channel(channels.len().max(1));
    let mut inputs: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    for (id, headers) in channels {
        let (input, data) = mpsc::channel(WAITING);
        inputs.insert(id, input);
        let stream = ClientStream { id, headers, data, frames: frames.clone(), framing };
        if let Some((_, text)) = greetings.iter().find(|(channel, _)| *channel == id) {
            stream.writer().send(text).await;
        }
        // There is room for all of them.
        let _ = opener.send(stream).await;
    }
    drop(frames);
    let is_base64 = matches!(framing, StreamFraming::WebSocket { base64: true, .. });
    tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await.filter(|frame| !frame.is_empty()) {
            let text = is_base64.then(|| String::from_utf8_lossy(&frame).into_owned());
            let message = text.map_or_else(|| Message::Binary(frame), |text| Message::Text(text.into()));
            if sink.send(message).await.is_err() {
                return;
            }
        }
        // A client that is gone is what is wanted.
        let _ = sink.send(normal_closure()).await;
    });
    tokio::spawn(async move {
        // The receiver of streams sees the end of the connection.
        let _opener = opener;
        while let Some(Ok(message)) = source.next().await {
            let parsed = match &message {
                Message::Binary(data) => parse_binary(data),
                Message::Text(text) => parse_text(text.as_str()),
                Message::Close(_) => return,
                _ => continue,
            };
            let Some((channel, data)) = parsed else { continue };
            if channel == u32::from(CLOSE_CHANNEL) {
                data.first().map(|closed| inputs.remove(&u32::from(*closed)));
            } else if let Some(input) = inputs.get(&channel)
                && !data.is_empty()
            {
                // A stream that nobody reads swallows its data.
                let _ = input.send(data).await;
            }
        }
    });
    opened
}

fn normal_closure() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

/// Serves a tunnel; returns the connection in it.
pub async fn serve_tunnel(upgraded: Upgraded) -> DuplexStream {
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
    let (mut sink, mut source) = socket.split();
    let (inner, outer) = tokio::io::duplex(TUNNEL_BUFFER);
    let (mut from_inner, mut to_inner) = tokio::io::split(outer);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            match message {
                Message::Binary(data) if to_inner.write_all(&data).await.is_err() => return,
                Message::Close(_) => break,
                _ => {}
            }
        }
        // A connection that has ended needs no end.
        let _ = to_inner.shutdown().await;
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; TUNNEL_BUFFER];
        while let Ok(length @ 1..) = from_inner.read(&mut buffer).await {
            if sink.send(Message::Binary(Bytes::copy_from_slice(&buffer[..length]))).await.is_err() {
                return;
            }
        }
        // A client that is gone is what is wanted.
        let _ = sink.send(normal_closure()).await;
    });
    inner
}

fn parse_binary(message: &Bytes) -> Option<(u32, Bytes)> {
    Some((u32::from(*message.first()?), message.slice(1..)))
}

fn parse_text(message: &str) -> Option<(u32, Bytes)> {
    let number = message.chars().next()?.to_digit(10)?;
    Some((number, BASE64_STANDARD.decode(&message[1..]).ok()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_protocol_is_chosen() {
        let chosen = |offered: Option<&str>, is_port: bool| {
            let mut headers = HeaderMap::new();
            if let Some(offered) = offered {
                headers.insert(header::SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap());
            }
            choose_protocol(&headers, is_port).map(|protocol| protocol.name)
        };
        assert_eq!(chosen(Some("channel.k8s.io, v4.channel.k8s.io"), false), Some("v4.channel.k8s.io"));
        assert_eq!(chosen(Some("base64.channel.k8s.io"), false), Some("base64.channel.k8s.io"));
        assert_eq!(chosen(None, false), Some(""));
        assert_eq!(chosen(Some("chat"), false), None);
        assert_eq!(chosen(Some("v5.channel.k8s.io"), true), None);
    }

    #[test]
    fn messages_are_parsed() {
        assert_eq!(parse_binary(&Bytes::from_static(b"\x00hi")), Some((0, Bytes::from_static(b"hi"))));
        assert_eq!(parse_binary(&Bytes::new()), None);
        assert_eq!(parse_text("0aGk="), Some((0, Bytes::from_static(b"hi"))));
        assert_eq!(parse_text("x"), None);
        assert_eq!(parse_text("0?"), None);
    }
}
