//! The server's side of a SPDY/3.1 connection: streams that the client opens.

use std::{collections::HashMap, io};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use super::{
    client_stream::{ClientStream, FIN, StreamFraming},
    spdy_headers::{HeaderReader, SpdyProtocolError},
};

const VERSION: u16 = 3;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
/// The largest frame; Go's copy buffers have 32 KiB.
const LARGEST_FRAME: usize = 1 << 20;
/// Frames that wait for a stream or for the connection.
const WAITING: usize = 64;
/// Streams of one connection.
const MOST_STREAMS: usize = 1024;

/// Keeps a connection open while it has no streams.
pub struct OpenConnection {
    _frames: mpsc::Sender<Bytes>,
}

/// Serves a connection: new streams come from the returned channel, which ends with the connection. Both tasks end when
/// the connection does, or when neither side uses it any more and the [`OpenConnection`] is dropped.
pub fn serve_connection<C>(connection: C) -> (mpsc::Receiver<ClientStream>, OpenConnection)
where
    C: AsyncRead + AsyncWrite + Send + 'static,
{
    let (reader, mut writer) = tokio::io::split(connection);
    let (frames, mut outgoing) = mpsc::channel::<Bytes>(WAITING);
    let (streams, opened) = mpsc::channel(WAITING);
    let open = OpenConnection { _frames: frames.clone() };
    tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await {
            if writer.write_all(&frame).await.is_err() {
                return;
            }
        }
        // A peer that is gone is what is wanted.
        let _ = writer.shutdown().await;
    });
    tokio::spawn(async move {
        if let Err(error) = read_frames(reader, frames, streams).await {
            tracing::debug!(%error, "container runtime: stream ended");
        }
    });
    (opened, open)
}

async fn read_frames(
    mut reader: impl AsyncRead + Unpin,
    frames: mpsc::Sender<Bytes>,
    opened: mpsc::Sender<ClientStream>,
) -> io::Result<()> {
    // The writer ends once the first streams were handed out and all are dropped.
    let weak = frames.downgrade();
    let mut kept = Some(frames);
    let mut buffer = BytesMut::new();
    let mut headers = HeaderReader::new();
    let mut streams: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    let mut opened = Some(opened);
    let mut has_replied = false;
    loop {
        while let Some((word, flags, mut payload)) = take_frame(&mut buffer)? {
            if word >> 31 == 0 {
                if let Some(stream) = streams.get(&word)
                    && !payload.is_empty()
                {
                    // A stream that nobody reads swallows its data.
                    let _ = stream.send(payload).await;
                }
                if flags & FIN != 0 {
                    streams.remove(&word);
                }
                continue;
            }
            match word as u16 {
                SYN_STREAM => {
                    let (Some(listener), Some(frames)) = (&opened, weak.upgrade()) else { continue };
                    if payload.len() < 10 || streams.len() >= MOST_STREAMS {
                        return Err(io::Error::other(SpdyProtocolError("a stream cannot be opened")));
                    }
                    let id = payload.get_u32() & 0x7fff_ffff;
                    payload.advance(6);
                    let headers = headers.read(&payload).map_err(io::Error::other)?;
                    let (sender, data) = mpsc::channel(WAITING);
                    if flags & FIN == 0 {
                        streams.insert(id, sender);
                    }
                    let is_first = !std::mem::replace(&mut has_replied, true);
                    let _ = frames.send(reply_frame(id, is_first)).await;
                    if listener
                        .send(ClientStream { id, headers, data, frames, framing: StreamFraming::Spdy })
                        .await
                        .is_err()
                    {
                        opened = None;
                    }
                    drop(kept.take());
                }
                RST_STREAM if payload.len() >= 4 => drop(streams.remove(&(payload.get_u32() & 0x7fff_ffff))),
                PING if payload.len() >= 4 => {
                    if let Some(frames) = weak.upgrade() {
                        let _ = frames.send(control_frame(PING, &payload)).await;
                    }
                }
                _ => {}
            }
        }
        if reader.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Takes a whole frame: its first word, flags and payload.
fn take_frame(buffer: &mut BytesMut) -> io::Result<Option<(u32, u8, Bytes)>> {
    let Some(head) = buffer.first_chunk::<8>() else { return Ok(None) };
    let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let (flags, length) = (head[4], u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize);
    let is_control = word >> 31 == 1;
    if length > LARGEST_FRAME || (is_control && (word >> 16) as u16 & 0x7fff != VERSION) {
        return Err(io::Error::other(SpdyProtocolError("a frame has another version or is too long")));
    }
    if buffer.len() < 8 + length {
        return Ok(None);
    }
    buffer.advance(8);
    Ok(Some((word, flags, buffer.split_to(length).freeze())))
}

fn control_frame(kind: u16, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(8 + payload.len());
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u32(payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

/// A reply without headers: a stored block of a zlib stream, which begins with the first reply.
fn reply_frame(stream: u32, is_first: bool) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u32(stream);
    if is_first {
        payload.put_slice(&[0x78, 0x01]);
    }
    // Four bytes: the number of headers. The empty block behind them makes the reader hand them out.
    payload.put_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
    payload.put_slice(&[0, 0, 0, 0xff, 0xff]);
    control_frame(SYN_REPLY, &payload)
}
