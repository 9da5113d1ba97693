//! Exec, attach and port-forward streams, proxied to the runtime's streaming server.
//!
//! The runtime accepts or rejects the requested protocol, SPDY or WebSocket; afterwards bytes are copied unchanged.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use runtime::cri::types::{AttachRequest, ExecRequest, PortForwardRequest};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use transport::query::Query;

use crate::{
    context::{self, KubeletContext},
    http_handler::{ResponseBody, text_response},
    runtime_status::PodRuntimeStatus,
};

/// The kind of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// A new command in a container.
    Exec(String),
    /// A container's main process.
    Attach(String),
    /// Ports of the pod.
    PortForward,
}

/// A stream could not be opened: status and message.
struct StreamError(StatusCode, String);

/// Serves a stream to a pod given as namespace and name.
pub async fn serve_stream(
    kubelet: Arc<KubeletContext>,
    purpose: StreamKind,
    of: [&str; 2],
    request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Response<ResponseBody> {
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let url = match stream_url(&kubelet, &purpose, of, &query).await {
        Ok(url) => url,
        Err(StreamError(status, why)) => return text_response(status, &why),
    };
    match proxy_upgrade(&url, request, shutdown).await {
        Ok(response) => response,
        Err(StreamError(status, why)) => text_response(status, &why),
    }
}

/// Asks the runtime for the URL of the stream.
async fn stream_url(
    kubelet: &KubeletContext,
    purpose: &StreamKind,
    of: [&str; 2],
    query: &Query,
) -> Result<String, StreamError> {
    let [namespace, name] = of;
    let missing = || StreamError(StatusCode::NOT_FOUND, "pod does not exist".into());
    let pod = kubelet.pods.get(namespace, name).ok_or_else(missing)?;
    let failed = |error: runtime::cri::CriError| StreamError(StatusCode::INTERNAL_SERVER_ERROR, error.message());
    let runtime_status = PodRuntimeStatus::fetch(&kubelet.cri, context::pod_uid(&pod)).await.map_err(failed)?;
    let container = |container: &str| {
        let running = runtime_status.latest_container(container).filter(|record| record.is_running());
        let missing = || StreamError(StatusCode::NOT_FOUND, format!("container not found ({container:?})"));
        running.map(|record| record.status.id.clone()).ok_or_else(missing)
    };
    let url = match purpose {
        StreamKind::Exec(name) => {
            let StreamOptions { stdin, stdout, stderr, tty } = StreamOptions::from_query(query)?;
            let (container_id, cmd) = (container(name)?, query.get_all("command").map(str::to_owned).collect());
            kubelet.cri.prepare_exec(ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await
        }
        StreamKind::Attach(name) => {
            let StreamOptions { stdin, stdout, stderr, tty } = StreamOptions::from_query(query)?;
            kubelet
                .cri
                .prepare_attach(AttachRequest { container_id: container(name)?, stdin, tty, stdout, stderr })
                .await
        }
        StreamKind::PortForward => {
            let missing = || StreamError(StatusCode::NOT_FOUND, format!("pod {name:?} does not run"));
            let pod_sandbox_id = runtime_status.ready_sandbox().ok_or_else(missing)?.id.clone();
            kubelet.cri.prepare_port_forward(PortForwardRequest { pod_sandbox_id, port: parse_ports(query)? }).await
        }
    };
    url.map_err(failed)
}

/// The streams of a command.
struct StreamOptions {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl StreamOptions {
    fn from_query(query: &Query) -> Result<Self, StreamError> {
        let either = |a: &str, b: &str| query.is_set(a) || query.is_set(b);
        let tty = query.is_set("tty");
        // A terminal has a single output stream.
        let streams = Self {
            stdin: either("input", "stdin"),
            stdout: either("output", "stdout"),
            stderr: either("error", "stderr") && !tty,
            tty,
        };
        if streams.stdin || streams.stdout || streams.stderr {
            return Ok(streams);
        }
        Err(StreamError(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr".into()))
    }
}

/// Parses the ports that WebSocket clients pass in the query.
fn parse_ports(query: &Query) -> Result<Vec<i32>, StreamError> {
    let all = query.get_all("port");
    let parts = all.flat_map(|value| value.split(',')).filter(|port| !port.is_empty());
    let parse = |port: &str| match port.parse::<u16>() {
        Ok(number) if number > 0 => Ok(i32::from(number)),
        _ => Err(StreamError(StatusCode::BAD_REQUEST, format!("port: {port:?} is not a port number"))),
    };
    parts.map(parse).collect()
}

/// Proxies an upgrade request and connects both sides once the runtime accepts.
async fn proxy_upgrade(
    url: &str,
    mut request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<ResponseBody>, StreamError> {
    if !transport::is_upgrade_request(request.headers()) {
        return Err(StreamError(StatusCode::BAD_REQUEST, "Upgrade request required".into()));
    }
    let failed = |why: &dyn std::fmt::Display| {
        StreamError(StatusCode::INTERNAL_SERVER_ERROR, format!("error dialing backend: {why}"))
    };
    let client = hyper::upgrade::on(&mut request);
    let uri: http::Uri = url.parse().map_err(|error| failed(&error))?;
    let (Some("http"), Some(authority), Some(path)) = (uri.scheme_str(), uri.authority(), uri.path_and_query()) else {
        return Err(failed(&format!("the container runtime's stream URL {url:?} is not http://host:port/…")));
    };
    let stream = TcpStream::connect(authority.as_str()).await.map_err(|error| failed(&error))?;
    stream.set_nodelay(true).map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection.with_upgrades());
    let mut passed = Request::new(Empty::<bytes::Bytes>::new());
    *passed.method_mut() = request.method().clone();
    *passed.uri_mut() = http::Uri::from(path.clone());
    *passed.headers_mut() = request.headers().clone();
    for name in [header::AUTHORIZATION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        passed.headers_mut().remove(name);
    }
    let mut response = sender.send_request(passed).await.map_err(|error| failed(&error))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response.map(|body| body.map_err(std::io::Error::other).boxed()));
    }
    transport::join_upgrades(client, hyper::upgrade::on(&mut response), shutdown);
    Ok(response.map(|_| Empty::new().map_err(|never| match never {}).boxed()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
        net::TcpListener,
    };

    use super::*;

    /// Starts a streaming server that responds with `head` and echoes; returns its URL.
    async fn runtime(head: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut requested = Vec::new();
            while !requested.ends_with(b"\r\n\r\n") {
                requested.push(stream.read_u8().await.unwrap());
            }
            let requested = String::from_utf8(requested).unwrap().to_ascii_lowercase();
            assert!(
                requested.starts_with("post /exec/token http/1.1") && requested.contains("upgrade: spdy/3.1"),
                "{requested}"
            );
            assert!(!requested.contains("authorization"), "{requested}");
            stream.write_all(head.as_bytes()).await.unwrap();
            let (mut from, mut to) = stream.split();
            // The test disconnects when it is done.
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        url
    }

    /// Returns a client of a kubelet that proxies everything to `url`.
    fn client(url: String, shutdown: CancellationToken) -> DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 16);
        let service = hyper::service::service_fn(move |request| {
            let (url, shutdown) = (url.clone(), shutdown.clone());
            async move {
                let response = proxy_upgrade(&url, request, shutdown).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|StreamError(status, why)| text_response(status, &why)))
            }
        });
        let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
        tokio::spawn(served.with_upgrades());
        client
    }

    async fn ask(client: &mut DuplexStream, headers: &str) -> String {
        let request = format!("POST /exec/ns/p/c HTTP/1.1\r\nHost: k\r\nAuthorization: Bearer x\r\n{headers}\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

    #[tokio::test]
    async fn upgraded_stream_is_copied_unchanged() {
        let shutdown = CancellationToken::new();
        let mut client = client(runtime(AGREED).await, shutdown.clone());
        let head = ask(&mut client, UPGRADE).await;
        assert!(head.starts_with("HTTP/1.1 101") && head.to_ascii_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        client.write_all(b"\x80\x03 any bytes").await.unwrap();
        let mut back = [0; 12];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"\x80\x03 any bytes");
        shutdown.cancel();
        assert_eq!(client.read(&mut back).await.unwrap(), 0, "streams end with the kubelet");
    }

    #[tokio::test]
    async fn rejection_is_passed_through() {
        let rejection = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        let mut client = client(runtime(rejection).await, CancellationToken::new());
        assert!(ask(&mut client, UPGRADE).await.starts_with("HTTP/1.1 403 Forbidden"));
    }

    #[tokio::test]
    async fn request_without_upgrade_is_rejected() {
        let mut client = client("http://127.0.0.1:1/".into(), CancellationToken::new());
        assert!(ask(&mut client, "").await.starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn ports_are_parsed_from_the_query() {
        let check = |query: &str| parse_ports(&Query::parse(query)).map_err(|rejection| rejection.1);
        assert_eq!(check("port=80%2C81&port=82"), Ok(vec![80, 81, 82]));
        assert_eq!(check(""), Ok(vec![]));
        assert!(check("port=0").is_err() && check("port=x").is_err() && check("port=65536").is_err());
    }

    #[test]
    fn command_requires_at_least_one_stream() {
        let check =
            |query: &str| StreamOptions::from_query(&Query::parse(query)).map(|s| [s.stdin, s.stdout, s.stderr, s.tty]);
        assert_eq!(check("input=1&output=1&error=1&tty=1").ok(), Some([true, true, false, true]));
        assert_eq!(check("stdin=true&stderr=true").ok(), Some([true, false, true, false]));
        assert!(check("tty=1").is_err());
    }
}
