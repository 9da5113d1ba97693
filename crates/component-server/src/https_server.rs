//! Accepts TLS connections and serves HTTP/1.1 and HTTP/2 on them.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::delegated_auth::UserInfo;

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the header of a request, which is also the idle time of an HTTP/1 connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of HTTP/2 pings; a client that does not answer is gone.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of open connections. Further ones are closed at once, before they cost a handshake.
const MAX_CONNECTIONS: usize = 2_000;

/// Body of a response.
pub type ResponseBody = BoxBody<Bytes, std::io::Error>;

/// Returns a body of text or bytes.
pub fn body_of(content: impl Into<Bytes>) -> ResponseBody {
    Full::new(content.into()).map_err(|never| match never {}).boxed()
}

/// The requests of a component's HTTPS server.
pub trait HttpsHandler: Send + Sync + 'static {
    /// Returns the user of a client's certificate chain; `None` for one that is not trusted.
    fn user_of_certificate(&self, chain: &[CertificateDer<'_>]) -> Option<UserInfo>;

    /// Responds to a request.
    fn handle(
        self: Arc<Self>,
        certificate_user: Arc<Option<UserInfo>>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<ResponseBody>> + Send;
}

/// Accepts connections until `shutdown`.
pub async fn serve_https<H: HttpsHandler>(
    handler: Arc<H>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Ok(slot) = slots.clone().try_acquire_owned() else {
                    tracing::warn!(%peer, "https server: too many connections, one is closed");
                    continue;
                };
                let connection = serve_connection(handler.clone(), acceptor.clone(), stream, shutdown.clone());
                tokio::spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            // Probably out of file descriptors; retry shortly.
            Err(error) => {
                tracing::warn!(%error, "https server: accept failed, retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection<H: HttpsHandler>(
    handler: Arc<H>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    shutdown: CancellationToken,
) {
    // Best effort: only latency suffers.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "https server: TLS handshake failed"),
        Err(_) => return,
    };
    let chain = stream.get_ref().1.peer_certificates();
    let certificate_user = Arc::new(chain.and_then(|chain| handler.user_of_certificate(chain)));
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (handler, certificate_user) = (handler.clone(), certificate_user.clone());
        async move { Ok::<_, Infallible>(handler.handle(certificate_user, request).await) }
    });
    let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE_INTERVAL);
    tokio::select! {
        result = builder.serve_connection_with_upgrades(TokioIo::new(stream), service) => if let Err(error) = result {
            tracing::debug!(error, "https server: connection failed");
        },
        () = shutdown.cancelled() => {}
    }
}
