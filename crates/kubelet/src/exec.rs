//! Commands in containers, and their own input and output: a WebSocket from the client, translated to the runtime's stream.
//!
//! The subprotocols are Kubernetes' `v5.channel.k8s.io` and `v4.channel.k8s.io`: every message begins with the number of
//! its channel, and channel 3 ends with a `Status` that says how the command ended.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, StreamExt, stream::SplitSink};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use runtime::{
    cri::types::{AttachRequest, ExecRequest},
    stream::{self, Input, Output, Streams},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        handshake::derive_accept_key,
        protocol::{CloseFrame, Role, frame::coding::CloseCode},
    },
};

use crate::{
    agent::{self, Agent},
    server::{Body, Query, text},
    truth::Truth,
};

const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// In version 5: the client closes the channel that the next byte names.
const CLOSE: u8 = 255;

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// What a client is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new command in the container.
    Exec,
    /// The container's main process.
    Attach,
}

/// Answers a request for a stream to a container: namespace, pod, container.
pub async fn serve(
    agent: Arc<Agent>,
    purpose: Purpose,
    of: [String; 3],
    mut request: Request<Incoming>,
) -> Response<Body> {
    let (key, protocol) = match negotiate(request.headers()) {
        Ok(negotiated) => negotiated,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let query = Query::parse(request.uri().query());
    let either = |a: &str, b: &str| query.is_set(a) || query.is_set(b);
    let streams = Streams {
        stdin: either("stdin", "input"),
        stdout: either("stdout", "output"),
        stderr: either("stderr", "error") && !query.is_set("tty"),
        tty: query.is_set("tty"),
    };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return text(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr");
    }
    let container = match find(&agent, &of).await {
        Ok(container) => container,
        Err((status, message)) => return text(status, &message),
    };
    let command = (purpose == Purpose::Exec).then(|| query.all("command"));
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
                run(&agent, socket, container, command, streams).await;
            }
            Err(error) => tracing::debug!(%error, "a client went away before its command ran"),
        }
    });
    switching(&key, protocol)
}

/// Where the runtime offers the stream.
async fn url(
    agent: &Agent,
    container_id: String,
    command: Option<Vec<String>>,
    streams: Streams,
) -> Result<String, runtime::cri::Error> {
    let Streams { stdin, stdout, stderr, tty } = streams;
    match command {
        Some(cmd) => agent.cri.exec(ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await,
        None => agent.cri.attach(AttachRequest { container_id, stdin, tty, stdout, stderr }).await,
    }
}

/// The client's key and the subprotocol to speak.
fn negotiate(headers: &HeaderMap) -> Result<(String, &'static str), String> {
    let get = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let upgrade = get("upgrade");
    if upgrade.to_ascii_uppercase().starts_with("SPDY") {
        return Err(
            "SPDY is not supported by this kubelet; use a client that speaks WebSocket (kubectl 1.31 or later)".into(),
        );
    }
    if !upgrade.eq_ignore_ascii_case("websocket") || get("sec-websocket-key").is_empty() {
        return Err("unable to upgrade: a WebSocket handshake is required".into());
    }
    let asked = headers.get_all("sec-websocket-protocol").iter().filter_map(|value| value.to_str().ok());
    let mut asked = asked.flat_map(|value| value.split(',')).map(str::trim);
    let found = asked.find_map(|asked| PROTOCOLS.into_iter().find(|known| *known == asked));
    let protocol =
        found.ok_or_else(|| format!("unable to negotiate a subprotocol: this kubelet has {}", PROTOCOLS.join(", ")))?;
    Ok((get("sec-websocket-key").into(), protocol))
}

fn switching(key: &str, protocol: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// The id of the running container.
async fn find(agent: &Agent, of: &[String; 3]) -> Result<String, (StatusCode, String)> {
    let [namespace, name, container] = of;
    let pod = agent.pods.get(namespace, name);
    let pod = pod.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {name:?} not found")))?;
    let truth = Truth::read(&agent.cri, agent::uid(&pod)).await;
    let truth = truth.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.message()))?;
    let running = truth.latest(container).filter(|seen| seen.running());
    let missing = || (StatusCode::NOT_FOUND, format!("container not found ({container:?})"));
    running.map(|seen| seen.status.id.clone()).ok_or_else(missing)
}

/// Joins the client with the command, or with the main process when there is none.
async fn run(agent: &Agent, socket: Socket, container: String, command: Option<Vec<String>>, streams: Streams) {
    let (mut sink, source) = socket.split();
    // An empty message tells the client that the connection stands.
    let ready = if streams.stdout { STDOUT } else { ERROR };
    if streams.stdout && sink.send(message(ready, b"")).await.is_err() {
        return;
    }
    let connected = match url(agent, container, command, streams).await {
        Ok(url) => stream::connect(&url, streams).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.message()),
    };
    match connected {
        Ok(exec) => {
            tokio::select! {
                () = feed(source, exec.input) => {}
                () = output(&mut sink, exec.output) => {}
            }
        }
        Err(error) => {
            // The client may be gone.
            let _ = sink.send(message(ERROR, internal_error(&error).as_bytes())).await;
        }
    }
    // Clients take any other code for a failure. The client may have closed it already.
    let normal = CloseFrame { code: CloseCode::Normal, reason: Default::default() };
    let _ = sink.send(Message::Close(Some(normal))).await;
    let _ = sink.close().await;
}

/// Passes on what the command writes, until it ends or the client takes no more.
async fn output(sink: &mut SplitSink<Socket, Message>, mut output: tokio::sync::mpsc::Receiver<Output>) {
    while let Some(piece) = output.recv().await {
        let message = match &piece {
            Output::Stdout(data) => message(STDOUT, data),
            Output::Stderr(data) => message(STDERR, data),
            Output::Exit(status) if status.is_empty() => {
                message(ERROR, internal_error("the container runtime broke off the stream").as_bytes())
            }
            Output::Exit(status) => message(ERROR, status),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// Passes on what the client sends, until it goes away.
async fn feed(mut source: futures::stream::SplitStream<Socket>, input: Input) {
    while let Some(Ok(message)) = source.next().await {
        let data = match message {
            Message::Binary(data) => data,
            Message::Text(text) => Bytes::from(text.as_bytes().to_vec()),
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
            // The command may have ended while its input was on the way.
            tracing::debug!(%error, "input for a command is lost");
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Size {
    width: u16,
    height: u16,
}

async fn resize(input: &Input, data: &[u8]) -> Result<(), stream::Error> {
    match serde_json::from_slice::<Size>(data) {
        Ok(size) => input.resize(size.width, size.height).await,
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
    serde_json::json!({ "metadata": {}, "status": "Failure", "message": message, "reason": "InternalError",
        "details": { "causes": [{ "message": message }] }, "code": 500 })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_s_first_known_subprotocol_is_spoken() {
        let negotiate = |list: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in list {
                headers.append(*name, HeaderValue::from_static(value));
            }
            negotiate(&headers)
        };
        let key = ("sec-websocket-key", "k");
        let upgrade = ("upgrade", "WebSocket");
        let protocols = ("sec-websocket-protocol", "v9.channel.k8s.io, v4.channel.k8s.io,v5.channel.k8s.io");
        assert_eq!(negotiate(&[key, upgrade, protocols]), Ok(("k".into(), "v4.channel.k8s.io")));
        assert!(negotiate(&[("upgrade", "SPDY/3.1")]).unwrap_err().contains("SPDY"));
        assert!(negotiate(&[key, upgrade]).unwrap_err().contains("subprotocol"));
        assert!(negotiate(&[]).is_err());
    }
}
