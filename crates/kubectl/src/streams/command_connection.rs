//! The streams of a remote command over either protocol: `v5.channel.k8s.io` on WebSocket, `v4.channel.k8s.io` on SPDY.

use bytes::{BufMut, Bytes, BytesMut};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use transport::spdy::{SpdyConnection, SpdyStream, SpdyStreamWriter};

use super::{
    TerminalSize,
    upgrade::{UpgradeFailure, WebSocketConnection, open_spdy, open_web_socket, with_fallback},
};
use crate::{
    errors::{CommandError, CommandResult},
    rest::{RestClient, RestRequest},
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// Closes the channel in the next byte.
const CLOSE: u8 = 255;
/// Buffered chunks of output.
const BUFFER: usize = 16;
/// Interval of pings to the server.
const PING_PERIOD: std::time::Duration = std::time::Duration::from_secs(5);

/// The streams of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamSelection {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// A message of a command.
#[derive(Debug)]
pub enum CommandOutput {
    /// Standard output.
    Stdout(Bytes),
    /// Standard error.
    Stderr(Bytes),
    /// The status at the end; empty if the connection broke off.
    Exit(Bytes),
}

/// The writing side.
pub enum CommandWriter {
    /// Messages with a channel number.
    WebSocket(SplitSink<WebSocketConnection, Message>),
    /// A SPDY stream for each.
    Spdy {
        /// Standard input.
        stdin: Option<SpdyStreamWriter>,
        /// Sizes of the terminal.
        resize: Option<SpdyStreamWriter>,
    },
}

/// A running command.
pub struct CommandConnection {
    /// The writing side.
    pub writer: CommandWriter,
    /// The output in order; the last item is [`CommandOutput::Exit`].
    pub output: mpsc::Receiver<CommandOutput>,
}

impl CommandConnection {
    /// Connects, with SPDY where the server does not speak WebSocket.
    pub async fn open(client: &RestClient, target: &RestRequest, streams: StreamSelection) -> CommandResult<Self> {
        let (websocket, spdy) = (open_with_websocket(client, target), open_with_spdy(client, target, streams));
        with_fallback("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websocket, spdy).await
    }
}

async fn open_with_websocket(client: &RestClient, target: &RestRequest) -> Result<CommandConnection, UpgradeFailure> {
    let (socket, chosen) = open_web_socket(client, target, &["v5.channel.k8s.io"]).await?;
    if chosen != "v5.channel.k8s.io" {
        return Err(UpgradeFailure::Refused(CommandError::new("the server does not speak v5.channel.k8s.io")));
    }
    let (sink, source) = socket.split();
    let (sender, output) = mpsc::channel(BUFFER);
    tokio::spawn(read_messages(source, sender));
    Ok(CommandConnection { writer: CommandWriter::WebSocket(sink), output })
}

async fn read_messages(mut source: SplitStream<WebSocketConnection>, sender: mpsc::Sender<CommandOutput>) {
    let mut status = Bytes::new();
    while let Some(Ok(message)) = source.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => break,
            _ => continue,
        };
        let Some(channel) = data.first().copied() else { continue };
        let rest = data.slice(1..);
        if rest.is_empty() {
            continue;
        }
        let item = match channel {
            STDOUT => CommandOutput::Stdout(rest),
            STDERR => CommandOutput::Stderr(rest),
            ERROR => {
                status = rest;
                continue;
            }
            _ => continue,
        };
        if sender.send(item).await.is_err() {
            return;
        }
    }
    // The receiver may be gone.
    let _ = sender.send(CommandOutput::Exit(status)).await;
}

async fn open_with_spdy(
    client: &RestClient,
    target: &RestRequest,
    streams: StreamSelection,
) -> Result<CommandConnection, UpgradeFailure> {
    let (transport, _) = open_spdy(client, target, &["v4.channel.k8s.io"]).await?;
    let connection = SpdyConnection::start(transport);
    let broken = |error: std::io::Error| UpgradeFailure::Broken(CommandError::new(error.to_string()));
    let open = async |wanted: bool, kind: &str| -> Result<Option<SpdyStream>, UpgradeFailure> {
        if !wanted {
            return Ok(None);
        }
        connection.open_stream(&[("streamtype", kind)]).await.map(Some).map_err(broken)
    };
    let error = open(true, "error").await?;
    let stdin = open(streams.stdin, "stdin").await?;
    let stdout = open(streams.stdout, "stdout").await?;
    let stderr = open(streams.stderr && !streams.tty, "stderr").await?;
    let resize = open(streams.tty, "resize").await?;
    let (sender, output) = mpsc::channel(BUFFER);
    tokio::spawn(async move {
        let status = tokio::join!(
            read_status(error),
            pass_on(stdout, &sender, CommandOutput::Stdout),
            pass_on(stderr, &sender, CommandOutput::Stderr)
        );
        // The receiver may be gone.
        let _ = sender.send(CommandOutput::Exit(status.0)).await;
    });
    let writer = |stream: Option<SpdyStream>| stream.map(|stream| stream.writer);
    Ok(CommandConnection { writer: CommandWriter::Spdy { stdin: writer(stdin), resize: writer(resize) }, output })
}

async fn read_status(stream: Option<SpdyStream>) -> Bytes {
    let mut status = BytesMut::new();
    if let Some(mut stream) = stream {
        while let Some(chunk) = stream.read_chunk().await {
            if status.len() < 64 << 10 {
                status.extend_from_slice(&chunk);
            }
        }
    }
    status.freeze()
}

async fn pass_on(
    stream: Option<SpdyStream>,
    sender: &mpsc::Sender<CommandOutput>,
    item: impl Fn(Bytes) -> CommandOutput,
) {
    let Some(mut stream) = stream else { return };
    while let Some(chunk) = stream.read_chunk().await {
        if sender.send(item(chunk)).await.is_err() {
            return;
        }
    }
}

fn channel_message(channel: u8, data: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(1 + data.len());
    bytes.put_u8(channel);
    bytes.put_slice(data);
    Message::Binary(bytes.freeze())
}

/// The command no longer takes input.
#[derive(Debug)]
pub struct InputClosed;

impl CommandWriter {
    /// Writes standard input.
    pub async fn write_stdin(&mut self, data: &[u8]) -> Result<(), InputClosed> {
        match self {
            CommandWriter::WebSocket(sink) => sink.send(channel_message(STDIN, data)).await.map_err(|_| InputClosed),
            CommandWriter::Spdy { stdin: Some(stdin), .. } => stdin.write(data).await.map_err(|_| InputClosed),
            CommandWriter::Spdy { .. } => Ok(()),
        }
    }

    /// Ends standard input.
    pub async fn close_stdin(&mut self) -> Result<(), InputClosed> {
        match self {
            CommandWriter::WebSocket(sink) => {
                sink.send(channel_message(CLOSE, &[STDIN])).await.map_err(|_| InputClosed)
            }
            CommandWriter::Spdy { stdin: Some(stdin), .. } => stdin.close().await.map_err(|_| InputClosed),
            CommandWriter::Spdy { .. } => Ok(()),
        }
    }

    /// Sends a size of the terminal.
    pub async fn resize(&mut self, size: TerminalSize) -> Result<(), InputClosed> {
        let text = format!("{{\"Width\":{},\"Height\":{}}}\n", size.width, size.height);
        match self {
            CommandWriter::WebSocket(sink) => {
                sink.send(channel_message(RESIZE, text.as_bytes())).await.map_err(|_| InputClosed)
            }
            CommandWriter::Spdy { resize: Some(resize), .. } => {
                resize.write(text.as_bytes()).await.map_err(|_| InputClosed)
            }
            CommandWriter::Spdy { .. } => Ok(()),
        }
    }

    /// Waits until the connection needs a sign of life, and sends it.
    pub async fn keep_alive(&mut self) -> Result<(), InputClosed> {
        match self {
            CommandWriter::WebSocket(sink) => sink.send(Message::Ping(Bytes::new())).await.map_err(|_| InputClosed),
            CommandWriter::Spdy { .. } => Ok(()),
        }
    }

    /// A timer for [`CommandWriter::keep_alive`].
    pub fn ping_timer() -> tokio::time::Interval {
        tokio::time::interval_at(tokio::time::Instant::now() + PING_PERIOD, PING_PERIOD)
    }
}
