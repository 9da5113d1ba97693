//! The SPDY/3.1 client for remote commands, which kubelets and container runtimes speak.
//!
//! [`connect_command`] opens the streams of Kubernetes' remote command protocol, version 4. Buffers are bounded both ways: a
//! consumer that does not read stops the container's output, and a container that does not read stops the input.

use std::sync::Arc;

use apiserver_core::{backend, backend::Backend, body::full_body};
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Mutex, mpsc},
};

use transport::spdy::frame::{self, SpdyFrame};

use crate::RemoteCommandOptions;

type UpgradedConnection = TokioIo<hyper::upgrade::Upgraded>;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// Buffered output chunks, each at most 32 KiB.
const OUTPUT_BUFFER: usize = 16;
/// Size of input frames.
const INPUT_FRAME: usize = 32 << 10;
/// Longer statuses are truncated.
const MAX_STATUS: usize = 64 << 10;

/// A stream that cannot be opened or ended early.
#[derive(Debug, thiserror::Error)]
pub enum SpdyError {
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
    Malformed(#[from] frame::MalformedFrame),
}

/// Output of the command, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The end: a `metav1.Status` in JSON, or empty if the connection ended early.
    Exit(Bytes),
}

/// A running command.
pub struct RemoteCommand {
    /// Input of the command.
    pub input: CommandInput,
    /// Output of the command; the last item is [`CommandOutput::Exit`].
    pub output: mpsc::Receiver<CommandOutput>,
}

/// The input of a command. Dropping it does not close the command's input.
#[derive(Clone)]
pub struct CommandInput {
    writer: Arc<Mutex<WriteHalf<UpgradedConnection>>>,
    ids: StreamIds,
}

/// Stream IDs: a client's are odd.
#[derive(Clone, Copy, Debug, Default)]
struct StreamIds {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl CommandInput {
    /// Writes to the command's input; ignored without one.
    pub async fn write_stdin(&self, mut data: &[u8]) -> Result<(), SpdyError> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        while !data.is_empty() {
            let (now, rest) = data.split_at(data.len().min(INPUT_FRAME));
            self.send_frame(frame::encode_data(stdin, false, now)).await?;
            data = rest;
        }
        Ok(())
    }

    /// Closes the command's input; output continues.
    pub async fn close_stdin(&self) -> Result<(), SpdyError> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        self.send_frame(frame::encode_data(stdin, true, &[])).await
    }

    /// Sends the terminal size; ignored without a terminal.
    pub async fn resize_terminal(&self, width: u16, height: u16) -> Result<(), SpdyError> {
        let Some(resize) = self.ids.resize else { return Ok(()) };
        let size = format!("{{\"Width\":{width},\"Height\":{height}}}\n");
        self.send_frame(frame::encode_data(resize, false, size.as_bytes())).await
    }

    async fn send_frame(&self, frame: Bytes) -> Result<(), SpdyError> {
        let mut writer = self.writer.lock().await;
        writer.write_all(&frame).await?;
        Ok(writer.flush().await?)
    }
}

/// Opens the streams of a command at a kubelet. Dropping the output ends the connection.
pub async fn connect_command(
    kubelet: &Backend,
    path: &str,
    streams: RemoteCommandOptions,
) -> Result<RemoteCommand, SpdyError> {
    let upgraded = upgrade_to_spdy(kubelet, path).await?;
    let (reader, writer) = tokio::io::split(upgraded);
    let mut ids = StreamIds::default();
    let mut opener = frame::SynStreamEncoder::default();
    let mut frames = Vec::new();
    let mut next = 1;
    let mut open = |kind: &str| {
        let id = next;
        next += 2;
        frames.push(opener.encode_syn_stream(id, &[("streamtype", kind)]));
        id
    };
    ids.error = open("error");
    ids.stdin = streams.stdin.then(|| open("stdin"));
    ids.stdout = streams.stdout.then(|| open("stdout"));
    ids.stderr = (streams.stderr && !streams.tty).then(|| open("stderr"));
    ids.resize = streams.tty.then(|| open("resize"));
    let input = CommandInput { writer: Arc::new(Mutex::new(writer)), ids };
    for frame in frames {
        input.send_frame(frame).await?;
    }
    let (sender, output) = mpsc::channel(OUTPUT_BUFFER);
    tokio::spawn(read_frames(reader, input.clone(), sender));
    Ok(RemoteCommand { input, output })
}

/// Upgrades to SPDY/3.1 and returns the connection.
async fn upgrade_to_spdy(kubelet: &Backend, path: &str) -> Result<UpgradedConnection, SpdyError> {
    let request = Request::post(path)
        .header(header::HOST, kubelet.host_and_port())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", PROTOCOL)
        .body(full_body(""))?;
    let response = kubelet.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let body = Limited::new(response.into_body(), MAX_STATUS).collect().await.map(|body| body.to_bytes());
        return Err(SpdyError::Refused(String::from_utf8_lossy(&body.unwrap_or_default()).trim().to_owned()));
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}

/// The state of the reader.
struct FrameReader {
    ids: StreamIds,
    status: BytesMut,
    /// Streams that the runtime has not closed.
    open: Vec<u32>,
}

/// Reads frames until the command's streams are closed, then sends the exit.
async fn read_frames(
    mut reader: ReadHalf<UpgradedConnection>,
    input: CommandInput,
    sender: mpsc::Sender<CommandOutput>,
) {
    let ids = input.ids;
    let open = [Some(ids.error), ids.stdout, ids.stderr].into_iter().flatten().collect();
    let mut reading = FrameReader { ids, status: BytesMut::new(), open };
    let ended = tokio::select! {
        ended = reading.read_until_closed(&mut reader, &input, &sender) => ended,
        () = sender.closed() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "remote command: stream ended early");
    }
    // The receiver may be gone.
    let _ = sender.send(CommandOutput::Exit(reading.status.freeze())).await;
    // The peer may have closed the connection.
    let _ = input.writer.lock().await.shutdown().await;
}

impl FrameReader {
    async fn read_until_closed(
        &mut self,
        reader: &mut ReadHalf<UpgradedConnection>,
        input: &CommandInput,
        sender: &mpsc::Sender<CommandOutput>,
    ) -> Result<(), SpdyError> {
        let mut buffer = BytesMut::with_capacity(64 << 10);
        while !self.open.is_empty() {
            while let Some(frame) = frame::decode_frame(&mut buffer)? {
                match frame {
                    SpdyFrame::Data { stream, fin, data } => self.handle_data(stream, fin, data, sender).await,
                    SpdyFrame::Reset(stream) => self.open.retain(|open| *open != stream),
                    SpdyFrame::Ping(id) => input.send_frame(frame::encode_ping(id)).await?,
                    SpdyFrame::GoAway => return Ok(()),
                    SpdyFrame::Other => {}
                }
            }
            if !self.open.is_empty() && reader.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn handle_data(&mut self, stream: u32, fin: bool, data: Bytes, sender: &mpsc::Sender<CommandOutput>) {
        if stream == self.ids.error {
            let room = MAX_STATUS - self.status.len();
            self.status.extend_from_slice(&data[..data.len().min(room)]);
        } else if !data.is_empty() {
            let output =
                if Some(stream) == self.ids.stderr { CommandOutput::Stderr(data) } else { CommandOutput::Stdout(data) };
            // The caller notices a dropped receiver.
            let _ = sender.send(output).await;
        }
        if fin {
            self.open.retain(|open| *open != stream);
        }
    }
}
