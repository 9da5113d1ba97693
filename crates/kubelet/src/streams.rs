//! Streams to containers and ports of pods: exec, attach and port-forward, passed on to the runtime's streaming server.
//!
//! Whatever the client asks to be upgraded to, SPDY or WebSocket, the runtime agrees to or refuses; afterwards bytes go
//! both ways as they are.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use runtime::cri::types::{AttachRequest, ExecRequest, PortForwardRequest};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::{self, Agent},
    server::{Body, Query, text},
    truth::Truth,
};

/// What a client is connected to: in a pod of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new command in a container.
    Exec(String),
    /// A container's main process.
    Attach(String),
    /// Ports of the pod.
    PortForward,
}

/// Why there is no stream.
struct Refusal(StatusCode, String);

/// Answers a request for a stream to a pod: namespace and name.
pub async fn serve(
    agent: Arc<Agent>,
    purpose: Purpose,
    of: [&str; 2],
    request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Response<Body> {
    let query = Query::parse(request.uri().query());
    let url = match url(&agent, &purpose, of, &query).await {
        Ok(url) => url,
        Err(Refusal(status, why)) => return text(status, &why),
    };
    match pass(&url, request, shutdown).await {
        Ok(answer) => answer,
        Err(Refusal(status, why)) => text(status, &why),
    }
}

/// Where the runtime offers the stream.
async fn url(agent: &Agent, purpose: &Purpose, of: [&str; 2], query: &Query) -> Result<String, Refusal> {
    let [namespace, name] = of;
    let missing = || Refusal(StatusCode::NOT_FOUND, "pod does not exist".into());
    let pod = agent.pods.get(namespace, name).ok_or_else(missing)?;
    let failed = |error: runtime::cri::Error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.message());
    let truth = Truth::read(&agent.cri, agent::uid(&pod)).await.map_err(failed)?;
    let container = |container: &str| {
        let running = truth.latest(container).filter(|seen| seen.running());
        let missing = || Refusal(StatusCode::NOT_FOUND, format!("container not found ({container:?})"));
        running.map(|seen| seen.status.id.clone()).ok_or_else(missing)
    };
    let url = match purpose {
        Purpose::Exec(name) => {
            let Streams { stdin, stdout, stderr, tty } = Streams::of(query)?;
            let (container_id, cmd) = (container(name)?, query.all("command"));
            agent.cri.exec(ExecRequest { container_id, cmd, tty, stdin, stdout, stderr }).await
        }
        Purpose::Attach(name) => {
            let Streams { stdin, stdout, stderr, tty } = Streams::of(query)?;
            agent.cri.attach(AttachRequest { container_id: container(name)?, stdin, tty, stdout, stderr }).await
        }
        Purpose::PortForward => {
            let missing = || Refusal(StatusCode::NOT_FOUND, format!("pod {name:?} does not run"));
            let pod_sandbox_id = truth.sandbox().ok_or_else(missing)?.id.clone();
            agent.cri.port_forward(PortForwardRequest { pod_sandbox_id, port: ports(query)? }).await
        }
    };
    url.map_err(failed)
}

/// Which streams a command has.
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Streams {
    fn of(query: &Query) -> Result<Self, Refusal> {
        let either = |a: &str, b: &str| query.is_set(a) || query.is_set(b);
        let tty = query.is_set("tty");
        // A terminal has one output.
        let streams = Self {
            stdin: either("input", "stdin"),
            stdout: either("output", "stdout"),
            stderr: either("error", "stderr") && !tty,
            tty,
        };
        if streams.stdin || streams.stdout || streams.stderr {
            return Ok(streams);
        }
        Err(Refusal(StatusCode::BAD_REQUEST, "you must specify at least 1 of stdin, stdout, stderr".into()))
    }
}

/// The ports that clients without SPDY name in the query.
fn ports(query: &Query) -> Result<Vec<i32>, Refusal> {
    let all = query.all("port");
    let parts = all.iter().flat_map(|value| value.split(',')).filter(|port| !port.is_empty());
    let parse = |port: &str| match port.parse::<u16>() {
        Ok(number) if number > 0 => Ok(i32::from(number)),
        _ => Err(Refusal(StatusCode::BAD_REQUEST, format!("port: {port:?} is not a port number"))),
    };
    parts.map(parse).collect()
}

/// Passes an upgrade on and joins both connections once the runtime has agreed.
async fn pass(
    url: &str,
    mut request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Result<Response<Body>, Refusal> {
    if !is_upgrade(request.headers()) {
        return Err(Refusal(StatusCode::BAD_REQUEST, "Upgrade request required".into()));
    }
    let failed = |why: &dyn std::fmt::Display| {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, format!("error dialing backend: {why}"))
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
    let mut answer = sender.send_request(passed).await.map_err(|error| failed(&error))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(answer.map(|body| body.map_err(std::io::Error::other).boxed()));
    }
    let backend = hyper::upgrade::on(&mut answer);
    tokio::spawn(async move {
        match tokio::try_join!(client, backend) {
            Ok((client, backend)) => join(TokioIo::new(client), TokioIo::new(backend), shutdown).await,
            Err(error) => tracing::debug!(%error, "an upgrade failed"),
        }
    });
    Ok(answer.map(|_| Empty::new().map_err(|never| match never {}).boxed()))
}

fn is_upgrade(headers: &http::HeaderMap) -> bool {
    let mut connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    headers.contains_key(header::UPGRADE) && connection.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Copies both ways until one side ends or the kubelet does; then both are closed.
async fn join(client: impl AsyncRead + AsyncWrite, backend: impl AsyncRead + AsyncWrite, shutdown: CancellationToken) {
    let ((mut from_client, mut to_client), (mut from_backend, mut to_backend)) = (split(client), split(backend));
    // Either side may just go away: that ends the stream, and is no fault.
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_backend) => {}
        _ = tokio::io::copy(&mut from_backend, &mut to_client) => {}
        () = shutdown.cancelled() => {}
    }
    let _ = to_client.shutdown().await;
    let _ = to_backend.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::{
        io::{AsyncReadExt, DuplexStream},
        net::TcpListener,
    };

    use super::*;

    /// A runtime's streaming server: answers with `head` and then repeats what it gets. Returns its URL.
    async fn runtime(head: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/exec/token", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            let asked = String::from_utf8(asked).unwrap().to_ascii_lowercase();
            assert!(asked.starts_with("post /exec/token http/1.1") && asked.contains("upgrade: spdy/3.1"), "{asked}");
            assert!(!asked.contains("authorization"), "{asked}");
            stream.write_all(head.as_bytes()).await.unwrap();
            let (mut from, mut to) = stream.split();
            // The test ends when it has seen enough.
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        url
    }

    /// A client of a kubelet that passes everything on to `url`.
    fn client(url: String, shutdown: CancellationToken) -> DuplexStream {
        let (client, server) = tokio::io::duplex(1 << 16);
        let service = hyper::service::service_fn(move |request| {
            let (url, shutdown) = (url.clone(), shutdown.clone());
            async move {
                let answer = pass(&url, request, shutdown).await;
                Ok::<_, Infallible>(answer.unwrap_or_else(|Refusal(status, why)| text(status, &why)))
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
    async fn an_upgrade_is_passed_on_byte_for_byte() {
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
    async fn a_refusal_is_passed_on() {
        let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno";
        let mut client = client(runtime(refusal).await, CancellationToken::new());
        assert!(ask(&mut client, UPGRADE).await.starts_with("HTTP/1.1 403 Forbidden"));
    }

    #[tokio::test]
    async fn what_is_no_upgrade_is_refused() {
        let mut client = client("http://127.0.0.1:1/".into(), CancellationToken::new());
        assert!(ask(&mut client, "").await.starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn ports_are_read_from_the_query() {
        let check = |query: &str| ports(&Query::parse(Some(query))).map_err(|refusal| refusal.1);
        assert_eq!(check("port=80%2C81&port=82"), Ok(vec![80, 81, 82]));
        assert_eq!(check(""), Ok(vec![]));
        assert!(check("port=0").is_err() && check("port=x").is_err() && check("port=65536").is_err());
    }

    #[test]
    fn a_command_has_at_least_one_stream() {
        let check = |query: &str| Streams::of(&Query::parse(Some(query))).map(|s| [s.stdin, s.stdout, s.stderr, s.tty]);
        assert_eq!(check("input=1&output=1&error=1&tty=1").ok(), Some([true, true, false, true]));
        assert_eq!(check("stdin=true&stderr=true").ok(), Some([true, false, true, false]));
        assert!(check("tty=1").is_err());
    }
}
