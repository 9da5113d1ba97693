//! Registries that fail in every way: the pull ends right, or says what is wrong.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpListener};

use super::*;

type Answer = Response<Full<Bytes>>;
type Handler = dyn Fn(&Request<Incoming>, &[u8]) -> Option<Answer> + Send + Sync;

/// A registry on loopback with one image, `app:1`.
struct TestRegistry {
    address: SocketAddr,
    /// Paths and headers of all requests.
    requests: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

/// The content of a registry by path.
fn content() -> HashMap<String, Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    let text = vec![7; 300_000];
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    layer.append_data(&mut header, "file", text.as_slice()).unwrap();
    let layer = layer.into_inner().unwrap();
    let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": { "diff_ids": [digest_of(&layer)] } });
    let config = config.to_string().into_bytes();
    let manifest = json!({ "schemaVersion": 2,
        "config": { "digest": digest_of(&config), "size": config.len() },
        "layers": [{ "digest": digest_of(&layer), "size": layer.len() }] });
    HashMap::from([
        (format!("/v2/app/blobs/{}", digest_of(&layer)), layer),
        (format!("/v2/app/blobs/{}", digest_of(&config)), config),
        ("/v2/app/manifests/1".to_owned(), manifest.to_string().into_bytes()),
    ])
}

fn status(code: u16) -> Answer {
    Response::builder().status(code).body(Full::default()).unwrap()
}

impl TestRegistry {
    /// A registry whose `handler` answers first; it gets the request and the content that was asked for.
    async fn start(handler: impl Fn(&Request<Incoming>, &[u8]) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<(String, HeaderMap)>>>::default();
        let (seen, handler): (_, Arc<Handler>) = (requests.clone(), Arc::new(handler));
        tokio::spawn(async move {
            let content = Arc::new(content());
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, handler, content) = (seen.clone(), handler.clone(), content.clone());
                let service = hyper::service::service_fn(move |request: Request<Incoming>| {
                    seen.lock().unwrap().push((request.uri().to_string(), request.headers().clone()));
                    let found = content.get(request.uri().path()).cloned();
                    let answer = handler(&request, found.as_deref().unwrap_or_default());
                    let plain = || found.map_or_else(|| status(404), |bytes| Response::new(Full::from(bytes)));
                    let answer = answer.unwrap_or_else(plain);
                    async move {
                        // A body is read, so that the connection can be used again.
                        let _ = request.into_body().collect().await;
                        Ok::<_, Infallible>(answer)
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Self { address, requests }
    }

    fn reference(&self) -> ImageReference {
        ImageReference::parse(&format!("{}/app:1", self.address)).unwrap()
    }

    async fn pull(&self, credentials: Option<RegistryCredentials>) -> Result<ImageRecord, ImageError> {
        pull_with(&self.reference(), credentials, &PullOptions::default()).await
    }

    fn requests(&self) -> Vec<(String, HeaderMap)> {
        self.requests.lock().unwrap().clone()
    }
}

/// Pulls into a new store, and checks that a failed pull leaves nothing in it.
async fn pull_with(
    reference: &ImageReference,
    credentials: Option<RegistryCredentials>,
    options: &PullOptions,
) -> Result<ImageRecord, ImageError> {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(ImageStore::open(directory.path()).unwrap());
    let pulled = pull_image(&store, reference, credentials, options).await;
    if pulled.is_ok() {
        assert!(store.find(&reference.to_string()).is_some());
    } else {
        assert!(store.list().is_empty());
        assert_eq!(std::fs::read_dir(directory.path().join("layers")).unwrap().count(), 0);
    }
    assert_eq!(std::fs::read_dir(directory.path().join("ingest")).unwrap().count(), 0);
    pulled
}

fn is_layer(request: &Request<Incoming>, content: &[u8]) -> bool {
    request.uri().path().contains("/blobs/") && content.len() > 100_000
}

fn credentials(username: &str, identity_token: &str) -> RegistryCredentials {
    RegistryCredentials {
        username: username.into(),
        password: "secret".into(),
        identity_token: identity_token.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn wrong_digest_is_refused() {
    let registry = TestRegistry::start(|request, content| {
        let mut wrong = content.to_vec();
        *wrong.get_mut(1000)? ^= 1;
        is_layer(request, content).then(|| Response::new(Full::from(wrong)))
    });
    let error = registry.await.pull(None).await.unwrap_err().to_string();
    assert!(error.contains("the digest is sha256:"), "{error}");
}

#[tokio::test]
async fn missing_image_is_not_found() {
    let registry = TestRegistry::start(|_, _| Some(status(404))).await;
    let error = registry.pull(None).await.unwrap_err();
    assert!(
        matches!(&error, ImageError::Pull { source, .. } if matches!(**source, ImageError::NotFound(_))),
        "{error}"
    );
}

#[tokio::test]
async fn endless_redirects_are_given_up() {
    let registry = TestRegistry::start(|request, _| {
        let mut answer = status(307);
        answer.headers_mut().insert(header::LOCATION, request.uri().path().parse().unwrap());
        Some(answer)
    });
    let error = registry.await.pull(None).await.unwrap_err().to_string();
    assert!(error.contains("too many redirects"), "{error}");
}

#[tokio::test]
async fn broken_layer_is_resumed_where_it_broke_off() {
    // Every connection for the layer is cut after a third of it.
    let cuts = Arc::new(AtomicUsize::new(0));
    let store = content();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let reference = ImageReference::parse(&format!("{}/app:1", listener.local_addr().unwrap())).unwrap();
    let counted = cuts.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4096];
            let length = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..length]).to_lowercase();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let body = &store[&path];
            let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
            let offset: usize = range.map_or(0, |number| number.parse().unwrap());
            let rest = &body[offset..];
            let code = if offset > 0 { "206 Partial Content" } else { "200 OK" };
            let answer = format!("HTTP/1.1 {code}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            let part = rest.len().min(120_000);
            counted.fetch_add(usize::from(part < rest.len()), SeqCst);
            stream.write_all(&rest[..part]).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    pull_with(&reference, None, &PullOptions::default()).await.unwrap();
    assert_eq!(cuts.load(SeqCst), 2);
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect() {
    let other = TestRegistry::start(|_, _| None).await;
    let target = other.address;
    let registry = TestRegistry::start(move |request, content| {
        let Some(sent) = request.headers().get(header::AUTHORIZATION) else {
            let mut answer = status(401);
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, "Basic realm=\"r\"".parse().unwrap());
            return Some(answer);
        };
        assert_eq!(sent.to_str().unwrap(), format!("Basic {}", BASE64_STANDARD.encode("user:secret")));
        let location = format!("http://{target}{}", request.uri().path());
        let mut answer = status(307);
        answer.headers_mut().insert(header::LOCATION, location.parse().unwrap());
        is_layer(request, content).then_some(answer)
    });
    registry.await.pull(Some(credentials("user", ""))).await.unwrap();
    let requests = other.requests();
    assert!(!requests.is_empty() && requests.iter().all(|(_, headers)| !headers.contains_key(header::AUTHORIZATION)));
}

#[tokio::test]
async fn refused_credentials_are_named() {
    let registry = TestRegistry::start(|_, _| {
        let mut answer = status(401);
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, "Basic realm=\"r\"".parse().unwrap());
        Some(answer)
    });
    let registry = registry.await;
    let error = registry.pull(Some(credentials("user", ""))).await.unwrap_err().to_string();
    assert!(error.contains("pull access denied"), "{error}");
    let error = registry.pull(None).await.unwrap_err().to_string();
    assert!(error.contains("no basic auth credentials"), "{error}");
}

#[tokio::test]
async fn tokens_come_from_the_token_server() {
    let registry = TestRegistry::start(|request, _| {
        if request.uri().path() == "/token" {
            // An identity token is posted, a password is sent as basic authentication.
            let is_basic = request.headers().contains_key(header::AUTHORIZATION);
            assert_eq!(request.method() == http::Method::GET, is_basic);
            let key = if is_basic { "token" } else { "access_token" };
            return Some(Response::new(Full::from(json!({ key: "good" }).to_string())));
        }
        let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        if sent.as_deref() == Some("Bearer good") {
            return None;
        }
        let mut answer = status(401);
        let realm = format!("http://{}/token", request.headers()[header::HOST].to_str().unwrap());
        let challenge = format!("Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:app:pull\"");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.parse().unwrap());
        Some(answer)
    });
    let registry = registry.await;
    registry.pull(Some(credentials("user", ""))).await.unwrap();
    registry.pull(Some(credentials("", "identity"))).await.unwrap();
}

#[tokio::test]
async fn mirror_that_fails_is_passed_over() {
    let registry = TestRegistry::start(|_, _| None).await;
    let mirror = TestRegistry::start(|_, _| Some(status(500))).await;
    let hosts = tempfile::tempdir().unwrap();
    let directory = hosts.path().join(registry.address.to_string());
    std::fs::create_dir(&directory).unwrap();
    let text = format!("[host.\"http://127.0.0.1:1\"]\n[host.\"http://{}\"]\n", mirror.address);
    std::fs::write(directory.join("hosts.toml"), text).unwrap();
    let options = PullOptions { hosts: Some(hosts.path().to_owned()) };
    pull_with(&registry.reference(), Some(credentials("user", "")), &options).await.unwrap();
    let asked = mirror.requests();
    assert!(asked[0].0.ends_with(&format!("?ns={}", registry.address)), "{}", asked[0].0);
    assert!(asked.iter().all(|(_, headers)| !headers.contains_key(header::AUTHORIZATION)));
}
