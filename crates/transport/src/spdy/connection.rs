//! The client's side of a SPDY connection: streams that are opened at any time, each with a bounded buffer.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Mutex, mpsc, watch},
};

use super::frame::{self, SpdyFrame, SynStreamEncoder};

/// Buffered chunks of a stream.
const BUFFER: usize = 16;
/// Size of the data frames that are sent.
const DATA_FRAME: usize = 32 << 10;

/// A connection. The streams of a peer that reads slowly hold up the others, as in upstream's implementation.
#[derive(Clone, Debug)]
pub struct SpdyConnection {
    shared: Arc<SharedState>,
    closed: watch::Receiver<bool>,
}

struct SharedState {
    writer: Mutex<ConnectionWriter>,
    streams: StdMutex<HashMap<u32, mpsc::Sender<Bytes>>>,
}

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}

struct ConnectionWriter {
    io: Box<dyn AsyncWrite + Send + Unpin>,
    encoder: SynStreamEncoder,
    next_id: u32,
}

/// A stream: what the peer sends, and the writer.
#[derive(Debug)]
pub struct SpdyStream {
    /// The writing side.
    pub writer: SpdyStreamWriter,
    received: mpsc::Receiver<Bytes>,
}

/// The writing side of a stream.
#[derive(Clone, Debug)]
pub struct SpdyStreamWriter {
    id: u32,
    shared: Arc<SharedState>,
}

impl SharedState {
    fn streams(&self) -> MutexGuard<'_, HashMap<u32, mpsc::Sender<Bytes>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut writer = self.writer.lock().await;
        writer.io.write_all(frame).await?;
        writer.io.flush().await
    }
}

impl SpdyConnection {
    /// Starts a connection on a transport that has switched to SPDY.
    pub fn start(transport: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(transport);
        let writer = ConnectionWriter { io: Box::new(writer), encoder: SynStreamEncoder::default(), next_id: 1 };
        let shared = Arc::new(SharedState { writer: Mutex::new(writer), streams: StdMutex::default() });
        let (sender, closed) = watch::channel(false);
        let state = shared.clone();
        tokio::spawn(async move {
            if let Err(error) = read_frames(reader, &state).await {
                tracing::debug!(%error, "spdy: connection ended");
            }
            state.streams().clear();
            // Nobody may be waiting for it.
            let _ = sender.send(true);
        });
        SpdyConnection { shared, closed }
    }

    /// Opens a stream with headers, whose names are in lower case.
    pub async fn open_stream(&self, headers: &[(&str, &str)]) -> io::Result<SpdyStream> {
        let (sender, received) = mpsc::channel(BUFFER);
        let mut writer = self.shared.writer.lock().await;
        let id = writer.next_id;
        writer.next_id += 2;
        self.shared.streams().insert(id, sender);
        let frame = writer.encoder.encode_syn_stream(id, headers);
        writer.io.write_all(&frame).await?;
        writer.io.flush().await?;
        drop(writer);
        Ok(SpdyStream { writer: SpdyStreamWriter { id, shared: self.shared.clone() }, received })
    }

    /// Waits until the peer has closed the connection.
    pub async fn wait_for_close(&self) {
        // The sender is dropped only after it has sent.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }
}

async fn read_frames(mut reader: impl AsyncRead + Unpin, state: &SharedState) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(64 << 10);
    loop {
        let decoded =
            frame::decode_frame(&mut buffer).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match decoded {
            Some(SpdyFrame::Data { stream, fin, data }) => {
                let sender = state.streams().get(&stream).cloned();
                if let Some(sender) = sender
                    && !data.is_empty()
                {
                    // A stream that is no longer read drops its data.
                    let _ = sender.send(data).await;
                }
                if fin {
                    state.streams().remove(&stream);
                }
            }
            Some(SpdyFrame::Reset(stream)) => drop(state.streams().remove(&stream)),
            Some(SpdyFrame::Ping(id)) => state.send(&frame::encode_ping(id)).await?,
            Some(SpdyFrame::GoAway) => return Ok(()),
            Some(SpdyFrame::Other) => {}
            None if reader.read_buf(&mut buffer).await? == 0 => return Ok(()),
            None => {}
        }
    }
}

impl SpdyStream {
    /// Waits for the next chunk; `None` at the end of the stream.
    pub async fn read_chunk(&mut self) -> Option<Bytes> {
        self.received.recv().await
    }
}

impl SpdyStreamWriter {
    /// Sends data.
    pub async fn write(&self, data: &[u8]) -> io::Result<()> {
        for chunk in data.chunks(DATA_FRAME) {
            self.shared.send(&frame::encode_data(self.id, false, chunk)).await?;
        }
        Ok(())
    }

    /// Ends the writing side.
    pub async fn close(&self) -> io::Result<()> {
        self.shared.send(&frame::encode_data(self.id, true, &[])).await
    }

    /// Gives the stream up in both directions.
    pub async fn reset(&self) -> io::Result<()> {
        self.shared.streams().remove(&self.id);
        self.shared.send(&frame::encode_reset(self.id)).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn streams_receive_their_own_data_and_end_with_fin() {
        let (near, mut far) = duplex(1 << 16);
        let connection = SpdyConnection::start(near);
        let mut one = connection.open_stream(&[("streamtype", "error")]).await.unwrap();
        let mut two = connection.open_stream(&[("streamtype", "data")]).await.unwrap();
        far.write_all(&frame::encode_data(3, false, b"two")).await.unwrap();
        far.write_all(&frame::encode_data(1, true, b"one")).await.unwrap();
        far.write_all(&frame::encode_data(9, true, b"unknown")).await.unwrap();
        assert_eq!(one.read_chunk().await.as_deref(), Some(&b"one"[..]));
        assert_eq!(one.read_chunk().await, None);
        assert_eq!(two.read_chunk().await.as_deref(), Some(&b"two"[..]));
        drop(far);
        assert_eq!(two.read_chunk().await, None);
        connection.wait_for_close().await;
    }

    #[tokio::test]
    async fn malformed_frames_end_the_connection() {
        let (near, mut far) = duplex(64);
        let connection = SpdyConnection::start(near);
        far.write_all(b"HTTP/1.1 500 no\r\n").await.unwrap();
        connection.wait_for_close().await;
    }
}
