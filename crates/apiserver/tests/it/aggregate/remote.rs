//! An aggregated API server, played by a small real one: TLS on loopback, one group, and what it was asked.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::broadcast,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::fixture::authority::Authority;

pub const GROUP: &str = "remote.example.com";
pub const VERSION: &str = "/apis/remote.example.com/v1";
pub const THINGS: &str = "/apis/remote.example.com/v1/namespaces/default/things";
/// The path of its document below `/openapi/v3/`.
pub const DOCUMENT: &str = "apis/remote.example.com/v1";
/// Its aggregated discovery document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    /// Whether a certificate of its authority was shown.
    pub certificate: bool,
}

impl Seen {
    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }
}

/// A server that can go away and come back.
pub struct Remote {
    pub port: u16,
    authority: Authority,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Lines for those who watch.
    pub lines: broadcast::Sender<String>,
    running: Mutex<CancellationToken>,
}

impl Remote {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let remote = Self {
            port: listener.local_addr().unwrap().port(),
            authority: Authority::new(),
            seen: Arc::default(),
            lines: broadcast::channel(16).0,
            running: Mutex::default(),
        };
        remote.serve(listener);
        remote
    }

    /// Its CA bundle, as in an APIService.
    pub fn bundle(&self) -> String {
        BASE64_STANDARD.encode(self.authority.pem())
    }

    /// A certificate that it accepts.
    pub fn certificate(&self) -> (String, String) {
        self.authority.pair("front-proxy-client")
    }

    pub fn stop(&self) {
        self.running.lock().unwrap().cancel();
    }

    pub async fn come_back(&self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        self.serve(listener);
    }

    /// The last request for a path.
    pub fn last(&self, path: &str) -> Seen {
        let seen = self.seen.lock().unwrap();
        seen.iter().rfind(|seen| seen.path == path).cloned().unwrap_or_else(|| panic!("nobody asked for {path}"))
    }

    fn serve(&self, listener: TcpListener) {
        let running = CancellationToken::new();
        *self.running.lock().unwrap() = running.clone();
        let tls = TlsAcceptor::from(self.authority.server());
        let (seen, lines) = (self.seen.clone(), self.lines.clone());
        tokio::spawn(async move {
            while let Some(Ok((stream, _))) = running.run_until_cancelled(listener.accept()).await {
                let (tls, seen, lines, running) = (tls.clone(), seen.clone(), lines.clone(), running.clone());
                tokio::spawn(async move {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    let certificate = stream.get_ref().1.peer_certificates().is_some();
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (method, headers) = (request.method().clone(), request.headers().clone());
                        let path = request.uri().path_and_query().unwrap().to_string();
                        seen.lock().unwrap().push(Seen { method, path, headers, certificate });
                        let lines = lines.subscribe();
                        async move { Ok::<_, Infallible>(answer(request, lines).await) }
                    });
                    let connection =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    // Cut off in the middle of everything, or ended by the client.
                    let _ = running.run_until_cancelled(connection.with_upgrades()).await;
                });
            }
        });
    }
}

async fn answer(mut request: Request<Incoming>, lines: broadcast::Receiver<String>) -> Response<Body> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (method, path.strip_prefix(THINGS).unwrap_or(&path)) {
        (Method::GET, "/apis") if accept.contains("APIGroupDiscoveryList") => with_type(aggregated(), AGGREGATED),
        (Method::GET, "/openapi/v2") => with_type(swagger(), "application/json"),
        (Method::GET, "/openapi/v3") => json_of(
            200,
            &json!({"paths": {
            "version": {"serverRelativeURL": "/openapi/v3/version?hash=0"},
            "apis/remote.example.com": {"serverRelativeURL": "/openapi/v3/apis/remote.example.com?hash=2"},
            DOCUMENT: {"serverRelativeURL": "/openapi/v3/apis/remote.example.com/v1?hash=1"}}}),
        ),
        (Method::GET, "/openapi/v3/apis/remote.example.com/v1") => {
            json_of(200, &json!({"openapi": "3.0.0", "from": "remote"}))
        }
        (Method::GET, VERSION) => json_of(200, &resources()),
        (Method::GET, "") if watch => watched(lines),
        (Method::GET, "") => {
            json_of(200, &json!({"kind": "ThingList", "apiVersion": "remote.example.com/v1", "items": []}))
        }
        (Method::POST, "") => {
            let bytes = request.into_body().collect().await.unwrap().to_bytes();
            json_of(201, &serde_json::from_slice(&bytes).unwrap())
        }
        (Method::GET, "/odd") => {
            let mut odd = json_of(418, &json!({"kind": "Status", "message": "I am a teapot"}));
            odd.headers_mut().insert("x-from", "remote".parse().unwrap());
            odd
        }
        (Method::GET, "/away") => {
            let mut away = json_of(302, &Value::Null);
            away.headers_mut().insert(header::LOCATION, "https://example.com/".parse().unwrap());
            away
        }
        (Method::GET, "/stream") => {
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move { echo(TokioIo::new(upgrade.await.unwrap())).await });
            let mut agreed = Response::new(Full::default().boxed_unsync());
            *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            agreed.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
            agreed.headers_mut().insert(header::UPGRADE, "echo".parse().unwrap());
            agreed
        }
        _ => json_of(404, &json!({"kind": "Status", "message": "no such thing"})),
    }
}

async fn echo(mut stream: TokioIo<hyper::upgrade::Upgraded>) {
    let mut buffer = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let loud = buffer[..count].to_ascii_uppercase();
        if stream.write_all(&loud).await.is_err() {
            return;
        }
    }
}

fn watched(lines: broadcast::Receiver<String>) -> Response<Body> {
    let frames = futures::stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await.ok()?;
        Some((Ok(Frame::data(Bytes::from(line + "\n"))), lines))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    response
}

fn swagger() -> Value {
    let refers =
        |name: &str| json!({"get": {"responses": {"200": {"schema": {"$ref": format!("#/definitions/{name}")}}}}});
    json!({"swagger": "2.0", "info": {"title": "remote", "version": "1"}, "paths": {
            "/apis/remote.example.com/v1/things": refers("com.example.Thing"),
            "/apis/apps/v1/things": refers("com.example.Lost")},
        "definitions": {"com.example.Lost": {"type": "object"},
            "com.example.Thing": {"type": "object", "properties": {
                "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "description": "something else"}}})
}

fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "remote.example.com/v1", "resources": [
        {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["create", "list", "watch"]}]})
}

fn aggregated() -> Value {
    let thing = json!({"resource": "things", "responseKind": {"group": "", "version": "", "kind": "Thing"}, "scope": "Namespaced",
        "singularResource": "thing", "verbs": ["create", "list", "watch"]});
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [
        {"metadata": {"name": GROUP}, "versions": [{"version": "v1", "resources": [thing], "freshness": "Current"}]}]})
}

fn json_of(code: u16, value: &Value) -> Response<Body> {
    let mut response = with_type(value.clone(), "application/json");
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn with_type(value: Value, content_type: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, content_type.parse().unwrap());
    response
}
