//! The kubelet's HTTPS server: what the API server asks on behalf of `kubectl logs`, `exec`, `attach` and `port-forward`.
//!
//! A certificate that a client shows has been verified by TLS before a request is read; [`Access`] asks the API server about
//! everything else.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::{
    access::{Access, User},
    agent::Agent,
    logs, metrics,
    streams::{self, Purpose},
    usage,
};

/// What an answer carries.
pub type Body = BoxBody<Bytes, std::io::Error>;

/// A client must have shaken hands by then.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown`.
pub async fn serve(
    agent: Arc<Agent>,
    access: Arc<Access>,
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
                let parts = (agent.clone(), access.clone());
                tokio::spawn(connection(parts, acceptor.clone(), stream, shutdown.clone()));
            }
            // Out of descriptors, most likely: the next connection can wait a moment.
            Err(error) => {
                tracing::warn!(%error, "the kubelet cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    (agent, access): (Arc<Agent>, Arc<Access>),
    acceptor: TlsAcceptor,
    stream: TcpStream,
    shutdown: CancellationToken,
) {
    // A client that does not want small packets at once has no use for these streams.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a client failed to shake hands"),
        Err(_) => return,
    };
    let ending = shutdown.clone();
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| User::of(chain.first()?));
    let shown = Arc::new(shown);
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let (agent, access, shown, ending) = (agent.clone(), access.clone(), shown.clone(), ending.clone());
        async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            let checked = access.check((*shown).as_ref(), &method, &path, request.headers_mut()).await;
            Ok::<_, Infallible>(match checked {
                Ok(()) => answer(agent, request, ending).await,
                Err(refused) => {
                    let (status, message) = refused.answer();
                    text(status, message)
                }
            })
        }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        result = builder.serve_connection_with_upgrades(TokioIo::new(stream), service) => if let Err(error) = result {
            tracing::debug!(error, "a connection to the kubelet broke off");
        },
        () = shutdown.cancelled() => {}
    }
}

async fn answer(agent: Arc<Agent>, request: Request<Incoming>, shutdown: CancellationToken) -> Response<Body> {
    let path = request.uri().path().to_string();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["healthz"]) => text(StatusCode::OK, "ok"),
        (&Method::GET, ["pods"]) => pods(&agent),
        (&Method::GET, ["metrics"]) => text(StatusCode::OK, &metrics::render(&agent.pods.list())),
        (&Method::GET, ["metrics", "resource"]) => text(StatusCode::OK, &usage::page(&agent.cri).await),
        (&Method::GET, ["containerLogs", namespace, pod, container]) => {
            let query = Query::parse(request.uri().query());
            logs::serve(&agent, [namespace, pod, container], &query).await
        }
        (
            &Method::GET | &Method::POST,
            [stream @ ("exec" | "attach"), namespace, pod, container]
            | [stream @ ("exec" | "attach"), namespace, pod, _, container],
        ) => {
            let purpose = if *stream == "exec" { Purpose::Exec } else { Purpose::Attach };
            streams::serve(agent, purpose((*container).to_string()), [namespace, pod], request, shutdown).await
        }
        (&Method::GET | &Method::POST, ["portForward", namespace, pod] | ["portForward", namespace, pod, _]) => {
            streams::serve(agent, Purpose::PortForward, [namespace, pod], request, shutdown).await
        }
        (_, ["run" | "cri" | "checkpoint", ..]) => {
            let message = format!("{} is not supported by this kubelet", parts[0]);
            text(StatusCode::NOT_IMPLEMENTED, &message)
        }
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn pods(agent: &Agent) -> Response<Body> {
    let items: Vec<Arc<Pod>> = agent.pods.list();
    let items: Vec<&Pod> = items.iter().map(|pod| &**pod).collect();
    let list = serde_json::json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items });
    let mut response = text(StatusCode::OK, &list.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// A plain answer.
pub fn text(status: StatusCode, message: &str) -> Response<Body> {
    let body = Full::new(Bytes::copy_from_slice(message.as_bytes())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = header::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// The query of a request, decoded.
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Takes a query apart.
    pub fn parse(query: Option<&str>) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(query.unwrap_or_default().split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The first value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of `key`.
    pub fn all(&self, key: &str) -> Vec<String> {
        self.0.iter().filter(|(name, _)| name == key).map(|(_, value)| value.clone()).collect()
    }

    /// Whether `key` is there and does not say no.
    pub fn is_set(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| !matches!(value, "0" | "false"))
    }

    /// A number; an error names the key.
    pub fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let parse = |value: &str| value.parse().map_err(|_| format!("{key}: {value:?} is not a number"));
        self.get(key).filter(|value| !value.is_empty()).map(parse).transpose()
    }
}

/// Undoes percent-encoding and `+`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    while let [first, tail @ ..] = rest {
        let (byte, after) = match (first, tail) {
            (b'+', _) => (b' ', tail),
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'%', tail),
            },
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let query =
            Query::parse(Some("command=sh&command=-c&command=echo%20%22a%26b%22+c&tty=1&stdin=false&tailLines=x"));
        assert_eq!(query.all("command"), ["sh", "-c", "echo \"a&b\" c"]);
        assert!(query.is_set("tty") && !query.is_set("stdin") && !query.is_set("absent"));
        assert!(query.number("tailLines").is_err());
        assert_eq!(query.number("absent"), Ok(None));
    }
}
