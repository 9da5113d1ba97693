//! Streams to a container: the SPDY/3.1 connection that a CRI runtime's exec and attach URLs speak.
//!
//! [`connect`] opens the streams of Kubernetes' remote command protocol, version 4. Buffers are bounded both ways: a
//! consumer that does not read stops the container's output, and a container that does not read stops the input.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::TcpStream,
    sync::{Mutex, mpsc},
};

mod frame;

use frame::Frame;

type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

const PROTOCOL: &str = "v4.channel.k8s.io";
/// Waiting pieces of output, each at most what the runtime sends at once (32 KiB).
const OUTPUT_BUFFER: usize = 16;
/// Input is cut into frames of this size.
const INPUT_FRAME: usize = 32 << 10;
/// A status longer than this is cut off.
const MAX_STATUS: usize = 64 << 10;

/// Why a stream could not be opened or broke off.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is not `http://host:port/…`.
    #[error("the container runtime's stream URL {0:?} is not supported: only http://host:port/… is")]
    Url(String),
    /// The runtime's streaming server cannot be reached, or the connection broke.
    #[error("the container runtime's stream: {0}")]
    Io(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("the container runtime's stream: {0}")]
    Http(#[from] hyper::Error),
    /// The runtime did not switch to SPDY.
    #[error("the container runtime refused the stream: {status}: {body}")]
    Refused {
        /// What it answered.
        status: StatusCode,
        /// With which text.
        body: String,
    },
    /// The runtime switched to something else.
    #[error(transparent)]
    Malformed(#[from] frame::Malformed),
}

/// Which streams a command has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streams {
    /// The command reads input.
    pub stdin: bool,
    /// Its output is wanted.
    pub stdout: bool,
    /// Its error output is wanted; not with a terminal.
    pub stderr: bool,
    /// It has a terminal, which can be resized.
    pub tty: bool,
}

/// What comes from the command, in the order in which the runtime sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Bytes that it wrote.
    Stdout(Bytes),
    /// Bytes that it wrote to its error output.
    Stderr(Bytes),
    /// The end: a `metav1.Status` in JSON, or nothing if the connection broke off before it.
    Exit(Bytes),
}

/// A running command.
pub struct Exec {
    /// What goes to the command.
    pub input: Input,
    /// What comes from it; the last item is [`Output::Exit`].
    pub output: mpsc::Receiver<Output>,
}

/// The way to a command. Dropping it does not close the command's input.
#[derive(Clone)]
pub struct Input {
    writer: Arc<Mutex<WriteHalf<Upgraded>>>,
    ids: Ids,
}

/// The numbers of the streams: a client's are odd.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Input {
    /// Writes to the command's input; ignored if it has none.
    pub async fn write(&self, mut data: &[u8]) -> Result<(), Error> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        while !data.is_empty() {
            let (now, rest) = data.split_at(data.len().min(INPUT_FRAME));
            self.send(frame::data(stdin, false, now)).await?;
            data = rest;
        }
        Ok(())
    }

    /// Closes the command's input; it may go on writing.
    pub async fn close(&self) -> Result<(), Error> {
        let Some(stdin) = self.ids.stdin else { return Ok(()) };
        self.send(frame::data(stdin, true, &[])).await
    }

    /// Tells the size of the terminal; ignored if there is none.
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

/// Connects to the URL of CRI's `Exec` and opens its streams. Dropping the output ends the connection.
pub async fn connect(url: &str, streams: Streams) -> Result<Exec, Error> {
    let upgraded = upgrade(url).await?;
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
    Ok(Exec { input, output })
}

/// Asks for SPDY/3.1 and returns the connection after the switch.
async fn upgrade(url: &str) -> Result<Upgraded, Error> {
    let uri: http::Uri = url.parse().map_err(|_| Error::Url(url.into()))?;
    let (Some("http"), Some(authority), Some(path)) = (uri.scheme_str(), uri.authority(), uri.path_and_query()) else {
        return Err(Error::Url(url.into()));
    };
    let stream = TcpStream::connect(authority.as_str()).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    let request = Request::post(path.as_str())
        .header(header::HOST, authority.as_str())
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", PROTOCOL)
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Url(url.into()))?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        return Err(Error::Refused { status, body: String::from_utf8_lossy(&body).trim().into() });
    }
    Ok(TokioIo::new(hyper::upgrade::on(response).await?))
}

/// What the reader knows of the streams.
struct Reading {
    ids: Ids,
    status: BytesMut,
    /// The streams that the runtime may still write to.
    open: Vec<u32>,
}

/// Reads frames until the command's streams are closed, then tells the exit.
async fn read(mut reader: ReadHalf<Upgraded>, input: Input, sender: mpsc::Sender<Output>) {
    let ids = input.ids;
    let open = [Some(ids.error), ids.stdout, ids.stderr].into_iter().flatten().collect();
    let mut reading = Reading { ids, status: BytesMut::new(), open };
    let ended = tokio::select! {
        ended = reading.run(&mut reader, &input, &sender) => ended,
        () = sender.closed() => Ok(()),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a stream to a container broke off");
    }
    // Nobody may be listening any more.
    let _ = sender.send(Output::Exit(reading.status.freeze())).await;
    // The peer may have closed it already.
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
            // A consumer that went away is noticed by the caller.
            let _ = sender.send(output).await;
        }
        if fin {
            self.open.retain(|open| *open != stream);
        }
    }
}
