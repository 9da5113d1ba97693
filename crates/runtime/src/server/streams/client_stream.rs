//! A stream of a client's connection, whichever protocol carries it.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::mpsc;

/// SPDY's flag of the last frame of a stream.
pub const FIN: u8 = 1;

/// The framing of a stream's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFraming {
    /// Frames of SPDY/3.1.
    Spdy,
    /// Messages of a WebSocket that begin with the number of the channel.
    WebSocket {
        /// Whether data is base64 and the number a digit.
        base64: bool,
        /// The channel whose end is the end of the connection.
        closing_channel: Option<u32>,
    },
}

/// A stream that the client opened.
pub struct ClientStream {
    /// The number of the stream or channel.
    pub id: u32,
    /// Headers with which it was opened.
    pub headers: Vec<(String, String)>,
    /// The data from the client; it ends with the stream.
    pub data: mpsc::Receiver<Bytes>,
    /// The sender of frames. An empty frame ends a WebSocket.
    pub frames: mpsc::Sender<Bytes>,
    /// The framing of data.
    pub framing: StreamFraming,
}

/// The half of a stream that is written.
#[derive(Clone)]
pub struct StreamWriter {
    id: u32,
    frames: mpsc::Sender<Bytes>,
    framing: StreamFraming,
}

impl ClientStream {
    /// A header.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Its written half.
    pub fn writer(&self) -> StreamWriter {
        StreamWriter { id: self.id, frames: self.frames.clone(), framing: self.framing }
    }
}

impl StreamWriter {
    /// Sends data; false if the connection is gone.
    pub async fn send(&self, data: &[u8]) -> bool {
        let frame = match self.framing {
            StreamFraming::Spdy => data_frame(self.id, false, data),
            StreamFraming::WebSocket { base64, .. } => channel_message(self.id, base64, data),
        };
        self.frames.send(frame).await.is_ok()
    }

    /// Ends the stream.
    pub async fn finish(&self) {
        let frame = match self.framing {
            StreamFraming::Spdy => data_frame(self.id, true, &[]),
            StreamFraming::WebSocket { closing_channel, .. } if closing_channel == Some(self.id) => Bytes::new(),
            // The other channels of a WebSocket end with it.
            StreamFraming::WebSocket { .. } => return,
        };
        // A connection that is gone needs no end.
        let _ = self.frames.send(frame).await;
    }
}

fn data_frame(stream: u32, fin: bool, data: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + data.len());
    frame.put_u32(stream);
    frame.put_u32(u32::from(if fin { FIN } else { 0 }) << 24 | data.len() as u32);
    frame.put_slice(data);
    frame.freeze()
}

fn channel_message(channel: u32, base64: bool, data: &[u8]) -> Bytes {
    let number = channel as u8;
    if base64 {
        return format!("{}{}", char::from(b'0' + number), BASE64_STANDARD.encode(data)).into();
    }
    let mut message = BytesMut::with_capacity(1 + data.len());
    message.put_u8(number);
    message.put_slice(data);
    message.freeze()
}
