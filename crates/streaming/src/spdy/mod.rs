//! The SPDY/3.1 client for remote commands, which kubelets and container runtimes speak.
//!
//! [`connect`] opens the streams of Kubernetes' remote command protocol, version 4. Buffers are bounded both ways: a
//! consumer that does not read stops the container's output, and a container that does not read stops the input.

mod frame;

use std::sync::Arc;

use apiserver_core::{backend, backend::Backend, body::full_body};
use bytes::{Bytes, BytesMut};
use frame::Frame;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Mutex, mpsc},
};

use crate::Streams;

type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// Buffered output chunks, each at most 32 KiB.
const OUTPUT_BUFFER: usize = 16;
/// Size of input frames.
const INPUT_FRAME: usize = 32 << 10;
/// Longer statuses are truncated.
const MAX_STATUS: usize = 64 << 10;

/// A stream that cannot be opened or ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubelet cannot be reached.
    #[error("error sending request: {0}")]
    Backend(#[from] backend::BackendError),
    /// The path is invalid.
    #[error("the kubelet cannot be asked: {0}")]
    Request(#[from] http::Error),
    /// The connection failed.
    #[error("the stream broke off: {0}")]
    Io(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("the stream broke off: {0}")]
    Http(#[from] hyper::Error),
    /// The kubelet did not switch protocols.
    #[error("unable to upgrade connection: {0}")]
    Refused(String),
    /// The kubelet switched to another protocol.
    #[error(transparent)]
    Malformed(#[from] frame::Malformed),
}

/// Output of the command, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The end: a `metav1.Status` in JSON, or empty if the connection ended early.
    Exit(Bytes),
}

/// A running command.
pub struct Command {
    /// Input of the command.
    pub input: Input,
    /// Output of the command; the last item is [`Output::Exit`].
    pub output: mpsc::Receiver<Output>,
}

/// The input of a command. Dropping it does not close the command's input.
#[derive(Clone)]
pub struct Input {
    writer: Arc<Mutex<WriteHalf<Upgraded>>>,
    ids: Ids,
}

/// Stream IDs: a client's are odd.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Input {
    /// Writes to the command's input; ignored without one.
    pub async fn write(&self, mut data: &[u8]) -> Result<(), Error> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        while !data.is_empty() {
            let (now, rest) = data.split_at(data.len().min(INPUT_FRAME));
            self.send(frame::data(stdin, false, now)).await?;
            data = rest;
        }
        Ok(())
    }

    /// Closes the command's input; output continues.
    pub async fn close(&self) -> Result<(), Error> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        self.send(frame::data(stdin, true, &[])).await
    }

    /// Sends the terminal size; ignored without a terminal.
    pub async fn resize(&self, width: u16, height: u16) -> Result<(), Error> {
        let Some(resize) = self.ids.resize else { return Ok(()) };
        let size = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
        self.send(frame::data(resize, false, size.as_bytes())).await
    }

    async fn send(&self, frame: Bytes) -> Result<(), Error> {
        let mut writer = self.writer.lock().await;
        writer.write_all(&frame).await?;
        Ok(writer.flush().await?)
    }
}

/// Opens the streams of a command at a kubelet. Dropping the output ends the connection.
pub async fn connect(kubelet: &Backend, path: &str, streams: Streams) -> Result<Command, Error> {
    let upgraded = upgrade(kubelet, path).await?;
    let (reader, writer) = tokio::io::split(upgraded);
    let mut ids = Ids::default();
    let mut opener = frame::Opener::default();
    let mut frames = Vec::new();
    let mut next = 1;
    let mut open = |kind: &str| {
        let id = next;
        next += 2;
        frames.push(opener.open(id, &[("streamtype", kind)]));
        id
    };
    ids.error = open("error");
    ids.stdin = streams.stdin.then(|| open("stdin"));
    ids.stdout = streams.stdout.then(|| open("stdout"));
    ids.stderr = (streams.stderr && !streams.tty).then(|| open("stderr"));
    ids.resize = streams.tty.then(|| open("resize"));
    let input = Input { writer: Arc::new(Mutex::new(writer)), ids };
    for frame in frames {
        input.send(frame).await?;
    }
    let (sender, output) = mpsc::channel(OUTPUT_BUFFER);
    tokio::spawn(read(reader, input.clone(), sender));
    Ok(Command { input, output })
}

/// Upgrades to SPDY/3.1 and returns the connection.
async fn upgrade(kubelet: &Backend, path: &str) -> Result<Upgraded, Error> {
    let request = Request::post(path)
        .header(header::HOST, kubelet.host_and_port())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", PROTOCOL)
        .body(full_body(""))?;
    let response = kubelet.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(response.into_body(), MAX_STATUS).collect().await.map(|body| body.to_bytes());
        return Err(Error::Refused(String::from_utf8_lossy(&body.unwrap_or_default()).trim().to_owned()));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}

/// The state of the reader.
struct Reading {
    ids: Ids,
    status: BytesMut,
    /// Streams that the runtime has not closed.
    open: Vec<u32>,
}

/// Reads frames until the command's streams are closed, then sends the exit.
async fn read(mut reader: ReadHalf<Upgraded>, input: Input, sender: mpsc::Sender<Output>) {
    let ids = input.ids;
    let open = [Some(ids.error), ids.stdout, ids.stderr].into_iter().flatten().collect();
    let mut reading = Reading { ids, status: BytesMut::new(), open };
    let ended = tokio::select! {
        ended = reading.run(&mut reader, &input, &sender) => ended,
        () = sender.closed() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "remote command: stream ended early");
    }
    // The receiver may be gone.
    let _ = sender.send(Output::Exit(reading.status.freeze())).await;
    // The peer may have closed the connection.
    let _ = input.writer.lock().await.shutdown().await;
}

impl Reading {
    async fn run(
        &mut self,
        reader: &mut ReadHalf<Upgraded>,
        input: &Input,
        sender: &mpsc::Sender<Output>,
    ) -> Result<(), Error> {
        let mut buffer = BytesMut::with_capacity(64 << 10);
        while !self.open.is_empty() {
            while let Some(frame) = frame::decode(&mut buffer)? {
                match frame {
                    Frame::Data { stream, fin, data } => self.take(stream, fin, data, sender).await,
                    Frame::Reset(stream) => self.open.retain(|open| *open != stream),
                    Frame::Ping(id) => input.send(frame::ping(id)).await?,
                    Frame::GoAway => return Ok(()),
                    Frame::Other => {}
                }
            }
            if !self.open.is_empty() && reader.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn take(&mut self, stream: u32, fin: bool, data: Bytes, sender: &mpsc::Sender<Output>) {
        if stream == self.ids.error {
            let room = MAX_STATUS - self.status.len();
            self.status.extend_from_slice(&data[..data.len().min(room)]);
        } else if !data.is_empty() {
            let output = if Some(stream) == self.ids.stderr { Output::Stderr(data) } else { Output::Stdout(data) };
            // The caller notices a dropped receiver.
            let _ = sender.send(output).await;
        }
        if fin {
            self.open.retain(|open| *open != stream);
        }
    }
}
