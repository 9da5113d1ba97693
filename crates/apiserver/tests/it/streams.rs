//! Streams and proxies over real connections: the API server behind TLS, and small servers in the place of kubelets and
//! pods.

use crate::fixture;
use std::{net::IpAddr, sync::Arc};

use crate::fixture::authority::Authority;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ferry_apiserver::{Server, ServerConfig, ServerOptions};
use futures::{SinkExt, StreamExt};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest},
};
use tokio_util::sync::CancellationToken;

type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// An API server behind TLS, a kubelet that does what the test says, and a pod on its node.
struct Fixture {
    authority: Authority,
    port: u16,
    end: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Fixture {
    /// `kubelet` gets every stream that the API server asks for, after the upgrade.
    async fn new<F>(kubelet: fn(Upgraded, String) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let authority = Authority::new();
        let (store, dir) = fixture::store().await;
        let kubelet_tls = authority.client();
        let config = ServerConfig { store, kubelet_tls, tokens: None };
        let settings = ServerOptions { admission: fixture::without_accounts(), ..authority.settings() };
        let server = Server::with_options(config, settings).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, end) = (listener.local_addr().unwrap().port(), CancellationToken::new());
        tokio::spawn(server.serve(listener, authority.server(), end.clone()));
        let fixture = Self { authority, port, end, _dir: dir };
        let kubelet = serve_kubelet(fixture.authority.server(), kubelet).await;
        fixture.node("127.0.0.1", kubelet).await;
        fixture.pod(json!({})).await;
        fixture
    }

    async fn node(&self, address: &str, port: u16) {
        self.post(
            "/api/v1/nodes",
            json!({"metadata": {"name": "n"}, "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}),
        )
        .await;
    }

    async fn pod(&self, status: Value) {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}});
        self.post("/api/v1/namespaces/default/pods", pod).await;
        let path = "/api/v1/namespaces/default/pods/p/status";
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        let (status, answer) = self.send(request.body(json!({"status": status}).to_string())).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn post(&self, path: &str, body: Value) {
        let request = Request::post(path).header("content-type", "application/json").body(body.to_string());
        let (status, answer) = self.send(request).await;
        assert_eq!(status, 201, "{answer}");
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(self.authority.client()).connect(name, stream).await.unwrap()
    }

    async fn exchange(&self, request: Result<Request<String>, http::Error>) -> Response<Incoming> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(self.connect().await)).await;
        let (mut sender, connection) = handshake.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = request.unwrap().map(|body| Full::new(Bytes::from(body)));
        request.headers_mut().insert(header::HOST, "apiserver".parse().unwrap());
        sender.send_request(request).await.unwrap()
    }

    async fn send(&self, request: Result<Request<String>, http::Error>) -> (u16, String) {
        let response = self.exchange(request).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn socket(&self, path: &str, protocol: &str) -> (WebSocketStream<TlsStream<TcpStream>>, String) {
        let url = format!("ws://127.0.0.1:{}/api/v1/namespaces/default/pods/p/{path}", self.port);
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        let (socket, answer) = tokio_tungstenite::client_async(request, self.connect().await).await.unwrap();
        let chosen =
            answer.headers().get(header::SEC_WEBSOCKET_PROTOCOL).map(|value| value.to_str().unwrap().to_owned());
        (socket, chosen.unwrap_or_default())
    }
}

/// A kubelet: agrees to SPDY on every path but those that say `refuse`.
async fn serve_kubelet<F>(tls: Arc<rustls::ServerConfig>, stream: fn(Upgraded, String) -> F) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let connection = TlsAcceptor::from(tls.clone()).accept(connection).await.unwrap();
            let service =
                service_fn(move |request| async move { Ok::<_, std::convert::Infallible>(agree(request, stream)) });
            let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            tokio::spawn(served.with_upgrades());
        }
    });
    port
}

fn agree<F>(mut request: Request<Incoming>, stream: fn(Upgraded, String) -> F) -> Response<Full<Bytes>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let path = request.uri().to_string();
    if path.starts_with("/containerLogs/") {
        let found = path.contains("tailLines=1");
        let (code, body) = if found { (200, "the last line\n") } else { (400, "no such log") };
        return Response::builder().status(code).body(body.into()).unwrap();
    }
    if path.contains("refuse") {
        return Response::builder().status(503).body("not now".into()).unwrap();
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move { stream(TokioIo::new(upgrade.await.unwrap()), path).await });
    let version = request.headers().get("x-stream-protocol-version").cloned().unwrap();
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("x-stream-protocol-version", version)
        .body(Full::default())
        .unwrap()
}

/// A SPDY frame: its first word, flags and payload.
async fn frame(stream: &mut Upgraded) -> Option<(u32, u8, Bytes)> {
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.ok()?;
    let mut head = &head[..];
    let word = head.get_u32();
    let rest = head.get_u32();
    let mut payload = vec![0; (rest & 0xff_ffff) as usize];
    stream.read_exact(&mut payload).await.ok()?;
    Some((word, (rest >> 24) as u8, payload.into()))
}

fn data(stream: u32, fin: bool, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u32(stream);
    frame.put_u32(u32::from(fin) << 24 | payload.len() as u32);
    frame.put_slice(payload);
    frame.freeze()
}

const ERROR: u32 = 1;
const STDIN: u32 = 3;
const STDOUT: u32 = 5;

/// A command that repeats its input in capitals and fails with 7 when it ends.
async fn shout(mut stream: Upgraded, path: String) {
    assert!(path.starts_with("/exec/default/p/c?command=shout&"), "{path}");
    while let Some((word, flags, payload)) = frame(&mut stream).await {
        if word != STDIN {
            continue;
        }
        stream.write_all(&data(STDOUT, false, &payload.to_ascii_uppercase())).await.unwrap();
        if flags & 1 == 1 {
            let status = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"message":"7"}]}}"#;
            stream.write_all(&data(ERROR, true, status)).await.unwrap();
            stream.write_all(&data(STDOUT, true, b"")).await.unwrap();
            return stream.shutdown().await.unwrap();
        }
    }
}

async fn echo(mut stream: Upgraded, _: String) {
    let mut buffer = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
    }
}

async fn garbage(mut stream: Upgraded, _: String) {
    stream.write_all(b"\x80\x09 this is no SPDY at all").await.unwrap();
    // Held open: the other side must notice by itself.
    let _ = stream.read(&mut [0; 1024]).await;
    std::future::pending().await
}

async fn binary(socket: &mut WebSocketStream<TlsStream<TcpStream>>) -> Bytes {
    loop {
        match socket.next().await.expect("a message").unwrap() {
            Message::Binary(data) => return data,
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn websocket_with_a_close_signal_is_translated() {
    let f = Fixture::new(shout).await;
    let path = "exec?command=shout&stdin=true&stdout=true&stderr=true";
    let (mut socket, protocol) = f.socket(path, "v5.channel.k8s.io, v4.channel.k8s.io").await;
    assert_eq!(protocol, "v5.channel.k8s.io");
    assert_eq!(binary(&mut socket).await, [1][..], "the connection stands");
    socket.send(Message::Binary(Bytes::from_static(b"\0hello"))).await.unwrap();
    assert_eq!(binary(&mut socket).await, b"\x01HELLO"[..]);
    // The longest message is cut into frames and arrives whole.
    let long = [vec![0], vec![b'x'; 100_000]].concat();
    socket.send(Message::Binary(long.into())).await.unwrap();
    let mut count = 0;
    while count < 100_000 {
        let piece = binary(&mut socket).await;
        assert!(piece[0] == 1 && piece[1..].iter().all(|byte| *byte == b'X'));
        count += piece.len() - 1;
    }
    socket.send(Message::Binary(Bytes::from_static(&[255, 0]))).await.unwrap();
    let status = binary(&mut socket).await;
    assert_eq!(status[0], 3);
    let status: Value = serde_json::from_slice(&status[1..]).unwrap();
    assert_eq!(status["details"]["causes"][0]["message"], "7");
    let closed = socket.next().await.unwrap().unwrap();
    assert!(matches!(&closed, Message::Close(Some(frame)) if u16::from(frame.code) == 1000), "{closed:?}");
}

#[tokio::test]
async fn a_kubelet_that_speaks_nonsense_ends_the_command() {
    let f = Fixture::new(garbage).await;
    let (mut socket, _) = f.socket("exec?command=x&stdout=true", "v5.channel.k8s.io").await;
    assert_eq!(binary(&mut socket).await, [1][..]);
    let status = binary(&mut socket).await;
    assert_eq!(status[0], 3);
    let status: Value = serde_json::from_slice(&status[1..]).unwrap();
    assert_eq!((&status["status"], &status["code"]), (&json!("Failure"), &json!(500)));
}

#[tokio::test]
async fn a_refusal_is_told_in_the_error_channel() {
    let f = Fixture::new(echo).await;
    let (mut socket, _) = f.socket("exec?command=refuse&stderr=true", "v5.channel.k8s.io").await;
    assert_eq!(binary(&mut socket).await, [2][..]);
    let status = binary(&mut socket).await;
    assert!(String::from_utf8_lossy(&status).contains("unable to upgrade connection: not now"), "{status:?}");
}

#[tokio::test]
async fn spdy_is_tunnelled_through_websocket() {
    let f = Fixture::new(echo).await;
    let (mut socket, protocol) = f.socket("portforward", "SPDY/3.1+portforward.k8s.io").await;
    assert_eq!(protocol, "SPDY/3.1+portforward.k8s.io");
    for text in [&b"some bytes"[..], b"and more"] {
        socket.send(Message::Binary(Bytes::copy_from_slice(text))).await.unwrap();
        assert_eq!(binary(&mut socket).await, text);
    }
    socket.send(Message::Text("no bytes".into())).await.unwrap();
    let ended = socket.next().await;
    assert!(!matches!(ended, Some(Ok(Message::Binary(_)))), "{ended:?}");
}

#[tokio::test]
async fn other_upgrades_are_passed_on() {
    let f = Fixture::new(echo).await;
    let request = Request::post("/api/v1/namespaces/default/pods/p/attach?stdout=true")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "SPDY/3.1")
        .header("X-Stream-Protocol-Version", "v4.channel.k8s.io")
        .body(String::new());
    let response = f.exchange(request).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["x-stream-protocol-version"], "v4.channel.k8s.io");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    stream.write_all(b"as it is").await.unwrap();
    let mut back = [0; 8];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"as it is");
}

#[tokio::test]
async fn what_is_no_upgrade_is_refused() {
    let f = Fixture::new(echo).await;
    for path in ["exec?command=x&stdout=1", "attach?stdout=1", "portforward"] {
        let request = Request::post(format!("/api/v1/namespaces/default/pods/p/{path}")).body(String::new());
        let (status, answer) = f.send(request).await;
        assert!(status == 400 && answer.contains("Upgrade request required"), "{answer}");
    }
}

#[tokio::test]
async fn websocket_handshakes_without_a_key_are_refused() {
    let f = Fixture::new(echo).await;
    let request = Request::get("/api/v1/namespaces/default/pods/p/exec?command=x&stdout=1")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io")
        .body(String::new());
    assert_eq!(f.send(request).await.0, 400);
}

#[tokio::test]
async fn logs_come_from_the_kubelet() {
    let f = Fixture::new(echo).await;
    let log = |query: &str| Request::get(format!("/api/v1/namespaces/default/pods/p/log{query}")).body(String::new());
    let response = f.exchange(log("?tailLines=1")).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "the last line\n");
    let (status, answer) = f.send(log("?follow=true")).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((status, &answer["message"]), (400, &json!("no such log")));
}

#[tokio::test]
async fn logs_are_messages_over_websocket() {
    let f = Fixture::new(echo).await;
    let text = |message: Message| match message {
        Message::Binary(bytes) => format!("b:{}", String::from_utf8_lossy(&bytes)),
        other => format!("t:{}", other.into_text().unwrap()),
    };
    for (protocol, empty, line) in
        [("binary.k8s.io", "b:", "b:the last line\n"), ("nope, base64.binary.k8s.io", "t:", "t:dGhlIGxhc3QgbGluZQo=")]
    {
        let (mut socket, chosen) = f.socket("log?tailLines=1", protocol).await;
        assert!(protocol.ends_with(&chosen) && !chosen.is_empty(), "{chosen}");
        assert_eq!(
            text(socket.next().await.unwrap().unwrap()),
            empty,
            "the first message says that there is an answer"
        );
        assert_eq!(text(socket.next().await.unwrap().unwrap()), line);
        assert!(matches!(socket.next().await, Some(Ok(Message::Close(_))) | None));
    }
    let request = Request::get("/api/v1/namespaces/default/pods/p/log?tailLines=1")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io")
        .body(String::new());
    assert_eq!(f.send(request).await.0, 400);
}

/// An address of this machine that others could have, if it has one.
fn address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: the kernel only chooses the address.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    let known = !ip.is_loopback() && !ip.is_unspecified();
    if !known {
        skip::skip_test("this machine has no address but loopback");
    }
    known.then_some(ip)
}

/// Tells what it was asked, and links to itself.
async fn page(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (path, method) = (request.uri().to_string(), request.method().clone());
    if path.starts_with("/moved") {
        return Ok(Response::builder().status(302).header("location", "/there").body(Full::default()).unwrap());
    }
    if path.starts_with("/page") {
        let page = Response::builder().header("content-type", "text/html").header("access-control-allow-origin", "*");
        return Ok(page.body("<a href=\"/x\">x</a>".into()).unwrap());
    }
    let get = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
    let told = json!({"path": path, "method": method.as_str(), "uri": get("x-forwarded-uri"),
        "for": get("x-forwarded-for"), "authorization": get("authorization"), "connection": get("connection")});
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let text = format!("{told}\n{}", String::from_utf8_lossy(&body));
    Ok(Response::builder().status(202).body(text.into()).unwrap())
}

/// A server in the place of a pod, and the pod with its address.
async fn proxied(f: &Fixture, ip: IpAddr) -> u16 {
    let listener = TcpListener::bind((ip, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let served =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(page));
            tokio::spawn(served);
        }
    });
    let request = Request::patch("/api/v1/namespaces/default/pods/p/status")
        .header("content-type", "application/merge-patch+json")
        .body(json!({"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}).to_string());
    assert_eq!(f.send(request).await.0, 200);
    port
}

#[tokio::test]
async fn pods_are_proxied_to() {
    let Some(ip) = address() else { return };
    let f = Fixture::new(echo).await;
    let port = proxied(&f, ip).await;
    let base = format!("/api/v1/namespaces/default/pods/p:{port}/proxy");
    let request = Request::put(format!("{base}/a/../b%20c/?q=1&r=%2F"))
        .header("authorization", "Bearer secret")
        .header("connection", "x-own")
        .header("x-own", "1")
        .body("the body".to_owned());
    let (status, answer) = f.send(request).await;
    let (told, body) = answer.split_once('\n').unwrap();
    let told: Value = serde_json::from_str(told).unwrap();
    assert_eq!((status, body), (202, "the body"));
    assert_eq!(told["path"], "/b%20c/?q=1&r=%2F");
    assert_eq!((&told["method"], &told["for"]), (&json!("PUT"), &json!("127.0.0.1")));
    assert_eq!((&told["authorization"], &told["connection"]), (&Value::Null, &Value::Null));
    assert!(told["uri"].as_str().unwrap().ends_with("/b%20c/"), "{told}");
    let get = |path: &str| Request::get(format!("{base}{path}")).body(String::new());
    let response = f.exchange(get("/moved")).await;
    assert_eq!(response.headers()["location"], format!("{base}/there"));
    let response = f.exchange(get("/page")).await;
    assert!(!response.headers().contains_key("access-control-allow-origin"));
    let page = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(page, format!("<a href=\"{base}/x\">x</a>"));
    let response = f.exchange(get("?q=1")).await;
    assert_eq!(
        (response.status().as_u16(), &response.headers()["location"]),
        (301, &format!("{base}/?q=1").parse().unwrap())
    );
    let options = Request::builder().method("OPTIONS").uri(format!("{base}/")).body(String::new());
    assert_eq!(f.send(options).await.0, 202);
}

#[tokio::test]
async fn services_are_proxied_to_pods_that_are_ready() {
    let Some(ip) = address() else { return };
    let f = Fixture::new(echo).await;
    let port = proxied(&f, ip).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    f.post("/api/v1/namespaces/default/services", service).await;
    let get =
        |name: &str| Request::get(format!("/api/v1/namespaces/default/services/{name}/proxy/x")).body(String::new());
    assert_eq!(f.send(get("s:web")).await.0, 404, "it has no endpoints");
    let end = |address: &str, ready: bool, pod: &str| {
        json!({"addresses": [address], "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "namespace": "default", "name": pod}})
    };
    let own = ip.to_string();
    let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "ports": [{"name": "web", "port": port}],
        "endpoints": [end("192.0.2.7", true, "p"), end("192.0.2.8", false, "p"), end("192.0.2.9", true, "other"), end(&own, true, "p")]});
    f.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    for name in ["s:web", "s:80", "http:s:web"] {
        assert_eq!(f.send(get(name)).await.0, 202, "{name}");
    }
    let (status, answer) = f.send(get("s:99")).await;
    assert!(status == 503 && answer.contains("no service port 99 found for service"), "{answer}");
    let (status, answer) = f.send(get("s:other")).await;
    assert!(status == 503 && answer.contains("no endpoints available for service"), "{answer}");
}

#[tokio::test]
async fn addresses_of_this_machine_are_not_proxied_to() {
    let f = Fixture::new(echo).await;
    for (path, why) in [
        ("/api/v1/namespaces/default/pods/p/proxy/", "address not allowed"),
        ("/api/v1/nodes/n/proxy/pods", "address not allowed"),
        ("/api/v1/nodes/n:1/proxy/pods", "address not allowed"),
        ("/api/v1/namespaces/default/pods/ftp:p:1/proxy/", "invalid pod request \\\"ftp:p:1\\\""),
    ] {
        let (status, answer) = f.send(Request::get(path).body(String::new())).await;
        assert!(status == 400 && answer.contains(why), "{answer}");
    }
}

#[tokio::test]
async fn watches_go_over_websocket_too() {
    let f = Fixture::new(echo).await;
    let path = "wss://127.0.0.1/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&timeoutSeconds=5";
    let request = path.into_client_request().unwrap();
    let (mut socket, response) = tokio_tungstenite::client_async(request, f.connect().await).await.unwrap();
    assert_eq!(response.status(), 101);
    f.post("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "a"}})).await;
    let message = socket.next().await.unwrap().unwrap();
    let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("a")));
    socket.send(Message::Ping(Bytes::from_static(b"still there?"))).await.unwrap();
    assert!(matches!(socket.next().await.unwrap().unwrap(), Message::Pong(_)), "it listens while it watches");
    socket.close(None).await.unwrap();
}
