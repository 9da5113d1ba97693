//! The kubelet's HTTPS server: logs, exec, attach, port-forward, pods and metrics.
//!
//! Client certificates are verified by TLS; everything else is checked by [`KubeletAuth`].

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::{KubeletAuth, UserInfo},
    context::KubeletContext,
    http_handler::{QueryParameters, ResponseBody, text_response},
    logs, metrics, resource_metrics,
    streams::{self, StreamKind},
};

/// Timeout of the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown`.
pub async fn serve_kubelet_api(
    kubelet: Arc<KubeletContext>,
    access: Arc<KubeletAuth>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let parts = (kubelet.clone(), access.clone());
                tokio::spawn(serve_connection(parts, acceptor.clone(), stream, shutdown.clone()));
            }
            // Probably out of file descriptors; retry shortly.
            Err(error) => {
                tracing::warn!(%error, "kubelet: accept failed, retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(
    (kubelet, access): (Arc<KubeletContext>, Arc<KubeletAuth>),
    acceptor: TlsAcceptor,
    stream: TcpStream,
    shutdown: CancellationToken,
) {
    // Best effort: only latency suffers.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "kubelet: TLS handshake failed"),
        Err(_) => return,
    };
    let ending = shutdown.clone();
    let certificate_user =
        stream.get_ref().1.peer_certificates().and_then(|chain| UserInfo::from_certificate(chain.first()?));
    let certificate_user = Arc::new(certificate_user);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let (kubelet, access, certificate_user, ending) =
            (kubelet.clone(), access.clone(), certificate_user.clone(), ending.clone());
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let checked =
                access.authorize_request((*certificate_user).as_ref(), &method, &path, request.headers_mut()).await;
            Ok::<_, Infallible>(match checked {
                Ok(()) => handle_request(kubelet, request, ending).await,
                Err(refused) => {
                    let (status, message) = refused.status_and_message();
                    text_response(status, message)
                }
            })
        }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        result = builder.serve_connection_with_upgrades(TokioIo::new(stream), service) => if let Err(error) = result {
            tracing::debug!(error, "kubelet: connection failed");
        },
        () = shutdown.cancelled() => {}
    }
}

async fn handle_request(
    kubelet: Arc<KubeletContext>,
    request: Request<Incoming>,
    shutdown: CancellationToken,
) -> Response<ResponseBody> {
    let path = request.uri().path().to_string();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["healthz"]) => text_response(StatusCode::OK, "ok"),
        (&Method::GET, ["pods"]) => list_pods(&kubelet),
        (&Method::GET, ["metrics"]) => text_response(StatusCode::OK, &metrics::render_metrics(&kubelet.pods.list())),
        (&Method::GET, ["metrics", "resource"]) => {
            text_response(StatusCode::OK, &resource_metrics::render_resource_metrics(&kubelet.cri).await)
        }
        (&Method::GET, ["containerLogs", namespace, pod, container]) => {
            let query = QueryParameters::parse(request.uri().query());
            logs::serve_container_logs(&kubelet, [namespace, pod, container], &query).await
        }
        (
            &Method::GET | &Method::POST,
            [stream @ ("exec" | "attach"), namespace, pod, container]
            | [stream @ ("exec" | "attach"), namespace, pod, _, container],
        ) => {
            let purpose = if *stream == "exec" { StreamKind::Exec } else { StreamKind::Attach };
            streams::serve_stream(kubelet, purpose((*container).to_string()), [namespace, pod], request, shutdown).await
        }
        (&Method::GET | &Method::POST, ["portForward", namespace, pod] | ["portForward", namespace, pod, _]) => {
            streams::serve_stream(kubelet, StreamKind::PortForward, [namespace, pod], request, shutdown).await
        }
        (_, ["run" | "cri" | "checkpoint", ..]) => {
            let message = format!("{} is not supported by this kubelet", parts[0]);
            text_response(StatusCode::NOT_IMPLEMENTED, &message)
        }
        _ => text_response(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn list_pods(kubelet: &KubeletContext) -> Response<ResponseBody> {
    let items: Vec<Arc<Pod>> = kubelet.pods.list();
    let items: Vec<&Pod> = items.iter().map(|pod| &**pod).collect();
    let list = serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    let mut response = text_response(StatusCode::OK, &list.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
