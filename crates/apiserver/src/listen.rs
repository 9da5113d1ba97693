//! Accepts TLS connections and serves HTTP/1.1 and HTTP/2.

use std::{convert::Infallible, sync::Arc, time::Duration};

use apiserver_core::{BodyError, body::text_response};
use authn::ConnectionPeer;
use futures::{FutureExt, future::ready};
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use registry::allocate;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    RequestOrigin, Server,
    activity::ConnectionActivity,
    bootstrap,
    pipeline::{self, AnonymousResponse},
    reload, usage_sampler,
};

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of a client's first request and of request headers, as upstream's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// HTTP/2 flow control window, large enough for a busy informer.
const STREAM_WINDOW: u32 = 4 << 20;
/// Maximum HTTP/2 frame size; most objects fit into one frame.
const MAX_FRAME: u32 = 256 << 10;
/// Maximum size of all headers of a request.
const MAX_HEADER_BYTES: u32 = 1 << 20;
/// Interval of HTTP/2 pings to idle clients.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(180);
/// Connections beyond this many wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 16_384;
/// Timeout of the final writes at shutdown: leases and audit events.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `shutdown`; then reports not ready, waits for the shutdown delay, ends watches and drains requests.
pub async fn serve_connections(
    server: Server,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    let ends = server.shared.options.shutdown.clone();
    let stop = CancellationToken::new();
    let accepting = tokio::spawn(accept_connections(server.clone(), listener, tls, stop.clone()));
    let kept_up = tokio::spawn(run_background_tasks(server.clone()));
    shutdown.cancelled().await;
    server.shared.shutting_down.cancel();
    // The tasks end with the token unless the store hangs; after a panic the process is ending anyway.
    let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, kept_up).await;
    tokio::time::sleep(ends.delay).await;
    server.shared.stopping.cancel();
    if ends.retry_after {
        server.shared.requests.close();
        // Slower requests are cut off below.
        let _ = tokio::time::timeout(ends.drain, server.shared.requests.wait()).await;
    }
    stop.cancel();
    // After a panic of the accept task there is nothing to drain.
    let Ok(connections) = accepting.await else { return };
    connections.close();
    if tokio::time::timeout(ends.drain, connections.wait()).await.is_err() {
        tracing::info!(
            open = connections.len(),
            "apiserver: connections still open after the drain timeout, closing them"
        );
    }
    if let Some(auditor) = &server.shared.auditor {
        // A hanging audit webhook does not delay the shutdown further.
        let _ = tokio::time::timeout(FINAL_WRITE_TIMEOUT, auditor.flush()).await;
    }
}

/// Runs the background tasks until shutdown begins.
async fn run_background_tasks(server: Server) {
    let ending = server.shared.shutting_down.clone();
    let kept = bootstrap::run_bootstrap(server.clone(), ending.clone());
    let sampled = async {
        if server.shared.options.admission.needs_container_usage() {
            usage_sampler::run_usage_sampler(&server, &ending).await;
        }
    };
    let reloaded = reload::run_reload(&server, &ending);
    let allocated = allocate::run_repair(server.registry().clone(), ending.clone());
    let aggregated = aggregator::run_availability(server.aggregator().clone(), ending.clone());
    tokio::join!(
        kept,
        allocated,
        aggregated,
        flowcontrol::run_seat_borrowing(server.shared.flow_controller.clone(), ending.clone()),
        sampled,
        reloaded
    );
}

/// Accepts connections until `shutdown`; returns those that are still open.
async fn accept_connections(
    server: Server,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> TaskTracker {
    let acceptor = TlsAcceptor::from(tls);
    let connections = TaskTracker::new();
    let places = Arc::new(tokio::sync::Semaphore::new(MAX_CONNECTIONS));
    while let Some(Ok(place)) = shutdown.run_until_cancelled(places.clone().acquire_owned()).await {
        let accepted = shutdown.run_until_cancelled(listener.accept()).await;
        let stream = match accepted {
            None => break,
            Some(Ok((stream, _))) => stream,
            Some(Err(error)) => {
                tracing::warn!(%error, "apiserver: accepting a connection failed, retrying");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (server, acceptor, shutdown) = (server.clone(), acceptor.clone(), shutdown.clone());
        connections.spawn(async move {
            serve_connection(server, stream, acceptor, shutdown).await;
            drop(place);
        });
    }
    connections
}

async fn serve_connection(server: Server, stream: TcpStream, acceptor: TlsAcceptor, shutdown: CancellationToken) {
    // Responses are written whole, so latency matters more than packet count.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let peer = stream.peer_addr().ok();
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            server.shared.metrics.count_handshake_error();
            return tracing::debug!(%error, "TLS handshake failed");
        }
        Err(_) => {
            server.shared.metrics.count_handshake_error();
            return tracing::debug!("TLS handshake timed out");
        }
    };
    let peer = Arc::new(ConnectionPeer::new(peer, stream.get_ref().1.peer_certificates()));
    let activity = Arc::new(ConnectionActivity::default());
    let load = server.shared.options.load.clone();
    let builder = connection_builder(&server);
    let service = {
        let activity = activity.clone();
        service_fn(move |request: http::Request<Incoming>| {
            let (server, peer, busy) = (server.clone(), peer.clone(), activity.begin_request());
            let activity = activity.clone();
            if is_rejected_at_shutdown(&server, &request) {
                activity.leave();
                return ready(Ok(busy.hold_until_sent(shutting_down_response()))).left_future();
            }
            let counted = server.shared.requests.token();
            if request.version() == http::Version::HTTP_2 && fastrand::f64() < load.goaway_chance {
                activity.leave();
            }
            let mut request = request.map(|body| body.map_err(BodyError::new).boxed_unsync());
            // Proxied requests carry the client's address.
            if let Some(address) = peer.address {
                request.extensions_mut().insert(address);
            }
            let is_http2 = request.version() == http::Version::HTTP_2;
            let answer = pipeline::handle_request(server, RequestOrigin::Peer(peer), request).map(move |response| {
                drop(counted);
                // HTTP/2 costs the server more than its client: anonymous clients get one request per connection.
                if is_http2 && response.extensions().get::<AnonymousResponse>().is_some() {
                    activity.leave();
                }
                Ok::<_, Infallible>(busy.hold_until_sent(response))
            });
            answer.right_future()
        })
    };
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = activity.wait_for_close() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether a request is rejected with `Retry-After` during shutdown. Health checks and metrics are served until the
/// end.
fn is_rejected_at_shutdown(server: &Server, request: &http::Request<Incoming>) -> bool {
    let exempt =
        ["/healthz", "/livez", "/metrics", "/readyz"].iter().any(|root| request.uri().path().starts_with(root));
    server.shared.options.shutdown.retry_after && server.shared.stopping.is_cancelled() && !exempt
}

/// 429, in upstream's words.
fn shutting_down_response() -> Response<apiserver_core::Body> {
    let mut response = text_response("The apiserver is shutting down, please try again later.\n");
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Configures HTTP/1.1 and HTTP/2.
fn connection_builder(server: &Server) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(4 * STREAM_WINDOW)
        .max_frame_size(MAX_FRAME)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .max_concurrent_streams(server.shared.options.serving.streams);
    builder
}
