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
    Streams, spdy,
    spdy::{Input, Output},
    websocket,
    websocket::Socket,
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
pub fn answer(
    stopping: &CancellationToken,
    kubelet: Backend,
    path: &str,
    streams: Streams,
    mut request: Request<Body>,
) -> Result<Response<Body>, Status> {
    let (response, client) = websocket::accept(&mut request, PROTOCOL)?;
    let (path, stopping) = (path.to_owned(), stopping.clone());
    tokio::spawn(async move {
        match client.await {
            Ok(client) => {
                let socket = websocket::socket(client).await;
                stopping.run_until_cancelled(run(socket, kubelet, &path, streams)).await;
            }
            Err(error) => tracing::debug!(%error, "remote command: client upgrade failed, the command is not run"),
        }
    });
    Ok(response)
}

/// Connects the client with the command.
async fn run(socket: Socket, kubelet: Backend, path: &str, streams: Streams) {
    let (mut sink, source) = socket.split();
    // An empty message confirms the connection.
    let ready = match streams {
        Streams { stdout: true, .. } => STDOUT,
        Streams { stderr: true, .. } => STDERR,
        _ => ERROR,
    };
    if sink.send(message(ready, b"")).await.is_err() {
        return;
    }
    match spdy::connect(&kubelet, path, streams).await {
        Ok(command) => {
            tokio::select! {
                () = feed(source, command.input) => {}
                () = output(&mut sink, command.output) => {}
            }
        }
        Err(error) => {
            // The client may have disconnected.
            let _ = sink.send(message(ERROR, internal_error(&error.to_string()).as_bytes())).await;
        }
    }
    // Clients treat other codes as failures. The client may have closed the connection.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    let _ = sink.close().await;
}

/// Forwards output until the command ends or the client disconnects.
async fn output(sink: &mut SplitSink<Socket, Message>, mut output: mpsc::Receiver<Output>) {
    while let Some(piece) = output.recv().await {
        let message = match &piece {
            Output::Stdout(data) => message(STDOUT, data),
            Output::Stderr(data) => message(STDERR, data),
            Output::Exit(status) if status.is_empty() => {
                message(ERROR, internal_error("the stream to the container broke off").as_bytes())
            }
            Output::Exit(status) => message(ERROR, status),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// Forwards input until the client disconnects.
async fn feed(mut source: SplitStream<Socket>, input: Input) {
    while let Some(Ok(message)) = source.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text),
            Message::Close(_) => return,
            _ => continue,
        };
        let result = match data.split_first() {
            Some((&STDIN, data)) => input.write(data).await,
            Some((&RESIZE, data)) => resize(&input, data).await,
            Some((&CLOSE, [STDIN])) => input.close().await,
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
struct Size {
    width: u16,
    height: u16,
}

async fn resize(input: &Input, data: &[u8]) -> Result<(), spdy::Error> {
    match serde_json::from_slice::<Size>(data) {
        Ok(size) => input.resize(size.width, size.height).await,
        // A malformed size is ignored.
        Err(_) => Ok(()),
    }
}

fn message(channel: u8, data: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(1 + data.len());
    bytes.put_u8(channel);
    bytes.put_slice(data);
    Message::Binary(bytes.freeze())
}

fn internal_error(message: &str) -> String {
    json!({"metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {message}"),
        "reason": "InternalError", "details": {"causes": [{"message": message}]}, "code": 500})
    .to_string()
}
