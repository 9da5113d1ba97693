//! Translates exec and attach over WebSocket (`v5.channel.k8s.io`) to the SPDY of kubelets. Every message starts with
//! its channel number; channel 3 ends with a `Status` of the command.

use api::status::Status;
use apiserver_core::{Body, backend::Backend};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use http::{Request, Response};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tokio_util::sync::CancellationToken;

use crate::{
    RemoteCommandOptions, spdy,
    spdy::{CommandInput, CommandOutput},
    websocket,
    websocket::WebSocketConnection,
};

const PROTOCOL: &str = "v5.channel.k8s.io";
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// The client closes the channel in the next byte.
const CLOSE: u8 = 255;

/// Accepts WebSocket; later errors are sent in the error channel.
pub fn translate_stream(
    stopping: &CancellationToken,
    kubelet: Backend,
    path: &str,
    streams: RemoteCommandOptions,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let (response, client) = websocket::accept_handshake(&mut request, PROTOCOL)?;
    let (path, stopping) = (path.to_owned(), stopping.clone());
    tokio::spawn(async move {
        match client.await {
            Ok(client) => {
                let socket = websocket::open_web_socket(client).await;
                stopping.run_until_cancelled(run_command(socket, kubelet, &path, streams)).await;
            }
            Err(error) => tracing::debug!(%error, "remote command: client upgrade failed, the command is not run"),
        }
    });
    Ok(response)
}

/// Connects the client with the command.
async fn run_command(socket: WebSocketConnection, kubelet: Backend, path: &str, streams: RemoteCommandOptions) {
    let (mut sink, source) = socket.split();
    // An empty message confirms the connection.
    let ready = match streams {
        RemoteCommandOptions { stdout: true, .. } => STDOUT,
        RemoteCommandOptions { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    if sink.send(channel_message(ready, b"")).await.is_err() {
        return;
    }
    match spdy::connect_command(&kubelet, path, streams).await {
        Ok(command) => {
            tokio::select! {
                () = forward_input(source, command.input) => {}
                () = forward_output(&mut sink, command.output) => {}
            }
        }
        Err(error) => {
            // The client may have disconnected.
            let _ = sink.send(channel_message(ERROR, internal_error_status(&error.to_string()).as_bytes())).await;
        }
    }
    // Clients treat other codes as failures. The client may have closed the connection.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    let _ = sink.close().await;
}

/// Forwards output until the command ends or the client disconnects.
async fn forward_output(sink: &mut SplitSink<WebSocketConnection, Message>, mut output: mpsc::Receiver<CommandOutput>) {
    while let Some(piece) = output.recv().await {
        let message = match &piece {
            CommandOutput::Stdout(data) => channel_message(STDOUT, data),
            CommandOutput::Stderr(data) => channel_message(STDERR, data),
            CommandOutput::Exit(status) if status.is_empty() => {
                channel_message(ERROR, internal_error_status("the stream to the container broke off").as_bytes())
            }
            CommandOutput::Exit(status) => channel_message(ERROR, status),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// Forwards input until the client disconnects.
async fn forward_input(mut source: SplitStream<WebSocketConnection>, input: CommandInput) {
    while let Some(Ok(message)) = source.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            _ => continue,
        };
        let result = match data.split_first() {
            Some((&STDIN, data)) => input.write_stdin(data).await,
            Some((&RESIZE, data)) => send_terminal_size(&input, data).await,
            Some((&CLOSE, [STDIN])) => input.close_stdin().await,
            _ => Ok(()),
        };
        if let Err(error) = result {
            // The command may have ended meanwhile.
            tracing::debug!(%error, "remote command: input dropped, the command has ended");
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TerminalSize {
    width: u16,
    height: u16,
}

async fn send_terminal_size(input: &CommandInput, data: &[u8]) -> Result<(), spdy::SpdyError> {
    match serde_json::from_slice::<TerminalSize>(data) {
        Ok(size) => input.resize_terminal(size.width, size.height).await,
        // A malformed size is ignored.
        Err(_) => Ok(()),
    }
}

fn channel_message(channel: u8, data: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(1 + data.len());
    bytes.put_u8(channel);
    bytes.put_slice(data);
    Message::Binary(bytes.freeze())
}

fn internal_error_status(message: &str) -> String {
    json!({"metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError", "details": {"causes": [{"message": message}]}, "code": 500})
    .to_string()
}
