//! Streams: exec, attach and port-forward over SPDY or WebSocket on a loopback port.
//!
//! A call of CRI returns a URL with a token that is good for one connection.

mod client_stream;
mod port_forward;
mod remote_command;
mod spdy;
mod spdy_headers;
mod web_socket;

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{RuntimeServer, new_id};
use crate::cri::types::*;

/// Time in which a URL must be used.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);
/// URLs that wait to be used.
const MOST_TOKENS: usize = 1000;
/// Versions of the protocol of commands, the best first.
const COMMAND_PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
const PORT_FORWARD_PROTOCOL: &str = "portforward.k8s.io";
const STREAM_PROTOCOL: &str = "x-stream-protocol-version";

/// The request that a token stands for.
#[derive(Clone, Debug)]
enum StreamRequest {
    Exec(ExecRequest),
    Attach(AttachRequest),
    PortForward(PortForwardRequest),
}

/// Tokens that were given out, and the port where they are good.
pub struct StreamTokens {
    port: u16,
    waiting: Mutex<HashMap<String, (Instant, StreamRequest)>>,
}

impl StreamTokens {
    /// Tokens for a port.
    pub fn new(listener: &TcpListener) -> io::Result<Self> {
        Ok(Self { port: listener.local_addr()?.port(), waiting: Mutex::default() })
    }

    fn insert(&self, kind: &str, request: StreamRequest) -> Result<String, Status> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, (made, _)| made.elapsed() < TOKEN_LIFETIME);
        if waiting.len() >= MOST_TOKENS {
            return Err(Status::resource_exhausted("maximum number of in-flight requests exceeded"));
        }
        let token = new_id();
        let url = format!("http://127.0.0.1:{}/{kind}/{token}", self.port);
        waiting.insert(token, (Instant::now(), request));
        Ok(url)
    }

    fn take(&self, path: &str) -> Option<StreamRequest> {
        let token = path.rsplit('/').next()?;
        let (made, request) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(token)?;
        (made.elapsed() < TOKEN_LIFETIME).then_some(request)
    }
}

impl RuntimeServer {
    pub(super) async fn exec(&self, request: ExecRequest) -> Result<ExecResponse, Status> {
        self.running_container(&request.container_id)?;
        check_streams(request.tty, [request.stdin, request.stdout, request.stderr])?;
        Ok(ExecResponse { url: self.streams.insert("exec", StreamRequest::Exec(request))? })
    }

    pub(super) async fn attach(&self, request: AttachRequest) -> Result<AttachResponse, Status> {
        self.running_container(&request.container_id)?;
        check_streams(request.tty, [request.stdin, request.stdout, request.stderr])?;
        Ok(AttachResponse { url: self.streams.insert("attach", StreamRequest::Attach(request))? })
    }

    pub(super) async fn port_forward(&self, request: PortForwardRequest) -> Result<PortForwardResponse, Status> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        if !sandbox.state().ready {
            return Err(Status::unknown(format!("sandbox container {:?} is not running", sandbox.id)));
        }
        Ok(PortForwardResponse { url: self.streams.insert("portforward", StreamRequest::PortForward(request))? })
    }
}

fn check_streams(tty: bool, streams: [bool; 3]) -> Result<(), Status> {
    if tty && streams[2] {
        return Err(Status::invalid_argument("tty and stderr cannot both be true"));
    }
    match streams.contains(&true) {
        true => Ok(()),
        false => Err(Status::invalid_argument("one of stdin, stdout, or stderr must be set")),
    }
}

/// Serves streams until `shutdown`.
pub async fn serve_streams(server: Arc<RuntimeServer>, listener: TcpListener, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(tokio::spawn(serve_http(server.clone(), stream))),
                Err(error) => {
                    tracing::warn!(%error, "container runtime: accept failed, retrying");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
}

async fn serve_http(server: Arc<RuntimeServer>, stream: TcpStream) {
    // Small writes of a terminal must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(accept_stream(server, request)) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.with_upgrades().await {
        tracing::debug!(%error, "container runtime: stream connection failed");
    }
}

fn accept_stream(server: Arc<RuntimeServer>, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let Some(wanted) = server.streams.take(request.uri().path()) else {
        return refuse(StatusCode::NOT_FOUND, "unknown or expired token");
    };
    if web_socket::is_handshake(request.headers()) {
        return accept_web_socket(server, request, wanted);
    }
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !upgrade.eq_ignore_ascii_case("SPDY/3.1") {
        return refuse(StatusCode::BAD_REQUEST, "this runtime streams over SPDY/3.1 and WebSocket");
    }
    let protocols: &[&str] = match wanted {
        StreamRequest::PortForward(_) => &[PORT_FORWARD_PROTOCOL],
        _ => &COMMAND_PROTOCOLS,
    };
    let Some(protocol) = choose_protocol(request.headers(), protocols) else {
        return refuse(StatusCode::FORBIDDEN, "unable to upgrade: unable to negotiate protocol");
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let (streams, open) = spdy::serve_connection(TokioIo::new(upgraded));
        match wanted {
            StreamRequest::Exec(request) => {
                // The client sees the end of the command by the end of the connection.
                drop(open);
                remote_command::run_exec(&server, request, protocol, streams).await;
            }
            StreamRequest::Attach(request) => {
                drop(open);
                remote_command::run_attach(&server, request, protocol, streams).await;
            }
            // Between two connections to ports there are no streams.
            StreamRequest::PortForward(request) => {
                port_forward::forward_ports(&server, &request, streams).await;
                drop(open);
            }
        }
    });
    let mut response = refuse(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, header::HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, header::HeaderValue::from_static("SPDY/3.1"));
    headers.insert(STREAM_PROTOCOL, header::HeaderValue::from_static(protocol));
    response
}

/// A response with a status and a text.
fn refuse(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = status;
    response
}

fn accept_web_socket(
    server: Arc<RuntimeServer>,
    mut request: Request<Incoming>,
    wanted: StreamRequest,
) -> Response<Full<Bytes>> {
    let is_port_forward = matches!(wanted, StreamRequest::PortForward(_));
    let Some(protocol) = web_socket::choose_protocol(request.headers(), is_port_forward) else {
        return refuse(StatusCode::FORBIDDEN, "unable to upgrade: unable to negotiate protocol");
    };
    let Some(headers) = web_socket::handshake_headers(request.headers(), protocol) else {
        return refuse(StatusCode::BAD_REQUEST, "the WebSocket handshake has no key");
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        match wanted {
            StreamRequest::Exec(request) => {
                let wanted = [request.stdin, request.stdout, request.stderr];
                let streams = web_socket::serve_command(upgraded, protocol, wanted, request.tty).await;
                remote_command::run_exec(&server, request, protocol.version, streams).await;
            }
            StreamRequest::Attach(request) => {
                let wanted = [request.stdin, request.stdout, request.stderr];
                let streams = web_socket::serve_command(upgraded, protocol, wanted, request.tty).await;
                remote_command::run_attach(&server, request, protocol.version, streams).await;
            }
            StreamRequest::PortForward(request) if protocol.is_tunnel() => {
                let (streams, open) = spdy::serve_connection(web_socket::serve_tunnel(upgraded).await);
                port_forward::forward_ports(&server, &request, streams).await;
                drop(open);
            }
            StreamRequest::PortForward(request) => {
                let streams = web_socket::serve_ports(upgraded, protocol, &request.port).await;
                port_forward::forward_ports(&server, &request, streams).await;
            }
        }
    });
    let mut response = refuse(StatusCode::SWITCHING_PROTOCOLS, "");
    *response.headers_mut() = headers;
    response
}

/// The best protocol that both sides know; clients that name none get the oldest.
fn choose_protocol(headers: &HeaderMap, known: &[&'static str]) -> Option<&'static str> {
    let offered: Vec<&str> = headers.get_all(STREAM_PROTOCOL).iter().filter_map(|value| value.to_str().ok()).collect();
    let offered: Vec<&str> = offered.iter().flat_map(|value| value.split(',')).map(str::trim).collect();
    if offered.is_empty() {
        return known.last().copied();
    }
    known.iter().find(|protocol| offered.contains(protocol)).copied()
}
