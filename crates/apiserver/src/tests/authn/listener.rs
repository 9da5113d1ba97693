//! A remote HTTPS server on loopback, with a certificate of a CA that lives as long as the test.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The received request.
pub struct Sent {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A server that answers as the test says, until it is dropped.
pub struct Listener {
    /// `https://127.0.0.1:port`
    pub url: String,
    /// The CA of its certificate.
    pub authority: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    pub async fn start(answer: impl Fn(Sent) -> Response<String> + Send + Sync + 'static) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let config = config.unwrap().with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(config)), Arc::new(answer)));
        Self { url, authority: issuer.pem(), task }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    answer: Arc<impl Fn(Sent) -> Response<String> + Send + Sync + 'static>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, answer) = (acceptor.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request: http::Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let sent = Sent { path: head.uri.path().to_owned(), headers: head.headers, body };
                    Ok::<_, Infallible>(answer(sent).map(|body| Full::new(Bytes::from(body))))
                }
            });
            // A client that goes away is none of the test's business.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A kubeconfig that leads to a server, in a directory.
pub fn kubeconfig(dir: &std::path::Path, listener: &Listener, user: &str) -> std::path::PathBuf {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let authority = BASE64_STANDARD.encode(&listener.authority);
    let file = dir.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster: {{server: \"{}/hook\", certificate-authority-data: {authority}}}\n\
         users:\n- name: u\n  user: {{{user}}}\n",
        listener.url
    );
    std::fs::write(&file, text).unwrap();
    file
}
