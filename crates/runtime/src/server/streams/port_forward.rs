//! Port-forward: pairs of streams, each connected to a port in the pod's network namespace.

use std::{collections::HashMap, sync::Arc};

use sys::netns::NetworkNamespace;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use super::{
    super::{RuntimeServer, blocking},
    client_stream::ClientStream,
};
use crate::cri::types::PortForwardRequest;

/// Pairs of which one stream is missing.
const MOST_WAITING: usize = 1000;

/// Forwards ports until the client disconnects.
pub async fn forward_ports(
    server: &Arc<RuntimeServer>,
    request: &PortForwardRequest,
    mut opened: mpsc::Receiver<ClientStream>,
) {
    let Ok(sandbox) = server.sandbox(&request.pod_sandbox_id) else { return };
    let namespace = format!("/proc/{}/ns/net", sandbox.state().pid);
    let mut waiting: HashMap<String, ClientStream> = HashMap::new();
    while let Some(stream) = opened.recv().await {
        let id = match stream.header("requestid") {
            // Old clients open the two streams of a port one after the other.
            "" => stream.header("port").to_owned(),
            id => id.to_owned(),
        };
        let Some(other) = waiting.remove(&id) else {
            if waiting.len() < MOST_WAITING {
                waiting.insert(id, stream);
            }
            continue;
        };
        let (data, error) = if stream.header("streamtype") == "data" { (stream, other) } else { (other, stream) };
        tokio::spawn(forward_port(namespace.clone(), data, error));
    }
}

async fn forward_port(namespace: String, data: ClientStream, error: ClientStream) {
    let port = data.header("port").to_owned();
    let outcome = match port.parse::<u16>() {
        Ok(number) => connect(namespace, number).await,
        Err(_) => Err(format!("{port:?} is not a port")),
    };
    match outcome {
        Ok(stream) => copy(stream, data).await,
        Err(message) => {
            let text = format!("an error occurred forwarding port {port}: {message}");
            if error.writer().send(text.as_bytes()).await {
                data.writer().finish().await;
            }
        }
    }
    error.writer().finish().await;
}

async fn connect(namespace: String, port: u16) -> Result<TcpStream, String> {
    let dial = move || {
        let namespace = NetworkNamespace::open(namespace)?;
        let stream = namespace.run(|| {
            let v4 = std::net::TcpStream::connect(("127.0.0.1", port));
            v4.or_else(|_| std::net::TcpStream::connect(("::1", port)))
        })??;
        stream.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(stream)
    };
    let dialed = blocking(dial).await.map_err(|status| status.message().to_owned())?;
    let stream = dialed.map_err(|error| format!("failed to connect to localhost:{port} inside namespace: {error}"))?;
    TcpStream::from_std(stream).map_err(|error| error.to_string())
}

async fn copy(stream: TcpStream, mut data: ClientStream) {
    let (mut from_pod, mut to_pod) = stream.into_split();
    let writer = data.writer();
    let requests = async {
        while let Some(bytes) = data.data.recv().await {
            if to_pod.write_all(&bytes).await.is_err() {
                return;
            }
        }
        // A pod that has closed the connection needs no end.
        let _ = to_pod.shutdown().await;
    };
    let responses = async {
        let mut buffer = vec![0; 32 << 10];
        while let Ok(length @ 1..) = from_pod.read(&mut buffer).await {
            if !writer.send(&buffer[..length]).await {
                return;
            }
        }
        writer.finish().await;
    };
    tokio::join!(requests, responses);
}
