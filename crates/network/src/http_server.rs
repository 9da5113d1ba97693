//! A small plain HTTP server for health and metrics.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The body of a response.
pub type ResponseBody = Full<Bytes>;

/// Wraps a body.
pub fn body_of(content: impl Into<Bytes>) -> ResponseBody {
    Full::new(content.into())
}

/// Serves until `shutdown`; `respond` gets the path of each request.
pub async fn serve_http(
    listener: TcpListener,
    respond: impl Fn(&str) -> Response<ResponseBody> + Clone + Send + Sync + 'static,
    shutdown: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            // Descriptors ran out or the peer is gone: the next one may do.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        let (respond, shutdown) = (respond.clone(), shutdown.clone());
        tokio::spawn(async move {
            let serve = service_fn(|request: Request<Incoming>| {
                let response = respond(request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), serve);
            // A connection that the peer breaks needs no further care.
            let _ = shutdown.run_until_cancelled(connection).await;
        });
    }
}
