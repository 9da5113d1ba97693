//! Admission and conversion webhooks: their addresses, and the connections that calls share.

use std::{sync::Arc, time::Duration};

use api::{Value, meta};
use bytes::Bytes;
use moka::sync::Cache;

use crate::{
    http_client::{Dialer, Endpoint, HttpClient, HttpClientError, HttpResponse, TlsConfigError, tls_config_for_bundle},
    services::ServiceResolver,
};

/// Maximum number of clients.
const MAX_CLIENTS: u64 = 256;
/// Clients without calls are dropped after this time.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
const USER_AGENT: &str = "kube-apiserver-admission";

/// The address of a webhook, from its client configuration.
pub enum WebhookAddress {
    /// A URL.
    Url(String),
    /// A Service.
    Service {
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        name: String,
        /// Port of the Service.
        port: u16,
        /// URL path.
        path: String,
    },
}

/// A failed webhook call, with the error texts of Go's client.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The CA bundle is invalid.
    #[error("unable to load root certificates: {0}")]
    CaBundle(#[from] Arc<TlsConfigError>),
    /// The URL is invalid.
    #[error("parse {url:?}: {source}")]
    Url {
        /// The configured URL.
        url: String,
        /// The cause.
        source: http::uri::InvalidUri,
    },
    /// The timeout elapsed.
    #[error("Post {0:?}: context deadline exceeded")]
    Timeout(String),
    /// The exchange failed.
    #[error("Post {url:?}: {source}")]
    Post {
        /// The URL of the call.
        url: String,
        /// The cause.
        source: HttpClientError,
    },
}

/// The HTTP clients of webhooks: one for each CA bundle, so that calls share connections and a changed bundle has none.
pub struct WebhookClients {
    services: Arc<ServiceResolver>,
    /// By CA bundle, and by whether the host is a Service.
    clients: Cache<(String, bool), HttpClient>,
}

impl WebhookClients {
    /// Clients that find the endpoints of Services with `services`.
    pub fn new(services: Arc<ServiceResolver>) -> Self {
        let clients = Cache::builder().max_capacity(MAX_CLIENTS).time_to_idle(CLIENT_IDLE_TIMEOUT).build();
        Self { services, clients }
    }

    /// The Services of the cluster.
    pub fn services(&self) -> &ServiceResolver {
        &self.services
    }

    /// Calls a webhook whose certificate is verified with a base64-encoded CA bundle.
    pub async fn call(
        &self,
        address: &WebhookAddress,
        bundle: &str,
        body: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<HttpResponse, WebhookError> {
        let (url, dialer) = match address {
            WebhookAddress::Url(url) => (url.split('?').next().unwrap_or_default().to_owned(), Dialer::Host),
            WebhookAddress::Service { namespace, name, port, path } => {
                let url = format!("https://{name}.{namespace}.svc:{port}/{}", path.trim_start_matches('/'));
                (url, Dialer::Service(self.services.clone()))
            }
        };
        let key = (bundle.to_owned(), matches!(dialer, Dialer::Service(_)));
        let client = || tls_config_for_bundle(bundle).map(|tls| HttpClient::new(&tls, dialer));
        let client = self.clients.try_get_with(key, client)?;
        let text = format!("{url}?timeout={}s", timeout.as_secs());
        let url = text.parse().map_err(|source| WebhookError::Url { url, source })?;
        let endpoint = Endpoint::with_client(client, url, text, USER_AGENT);
        endpoint.post(body, timeout).await.map_err(|error| match error {
            HttpClientError::Timeout => WebhookError::Timeout(endpoint.url().to_owned()),
            source => WebhookError::Post { url: endpoint.url().to_owned(), source },
        })
    }
}

/// Reads the address of a client configuration.
pub fn webhook_address(config: &Value) -> WebhookAddress {
    let Some(service) = meta::value_at(config, &["service"]) else {
        return WebhookAddress::Url(meta::string_at(config, &["url"]).to_owned());
    };
    let text = |field: &str| meta::string_at(service, &[field]).to_owned();
    let port = meta::value_at(service, &["port"]).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    WebhookAddress::Service {
        namespace: text("namespace"),
        name: text("name"),
        port: port.unwrap_or(443),
        path: text("path"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use base64::{Engine, prelude::BASE64_STANDARD};
    use http_body_util::Full;
    use hyper::service::service_fn;
    use hyper_util::{
        rt::{TokioExecutor, TokioIo},
        server::conn::auto,
    };
    use rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer};
    use store::{EmbeddedOptions, EmbeddedStore, HistoryWindow, WatchCache};
    use tokio::{net::TcpListener, sync::watch};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::catalog::BuiltInCatalog;

    /// A webhook that counts its connections.
    struct WebhookServer {
        clients: WebhookClients,
        address: WebhookAddress,
        bundle: String,
        accepted: Arc<AtomicUsize>,
        closing: watch::Sender<()>,
        _dir: tempfile::TempDir,
    }

    impl WebhookServer {
        async fn start(protocol: &str) -> Self {
            let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
            let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
            let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
            let tls = tls.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
            let mut tls = tls.with_single_cert(vec![signed.cert.der().clone()], key).unwrap();
            tls.alpn_protocols = vec![protocol.as_bytes().to_vec()];
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = WebhookAddress::Url(format!("https://{}/hook", listener.local_addr().unwrap()));
            let (accepted, (closing, closed)) = (Arc::new(AtomicUsize::new(0)), watch::channel(()));
            tokio::spawn(serve_webhook(listener, TlsAcceptor::from(Arc::new(tls)), accepted.clone(), closed));
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(EmbeddedStore::open(dir.path(), EmbeddedOptions::default()).await.unwrap());
            let cache = WatchCache::with_engine(store, Arc::new(BuiltInCatalog), HistoryWindow::default()).await;
            let services = Arc::new(ServiceResolver::new(&Arc::new(cache.unwrap())).unwrap());
            let (clients, bundle) = (WebhookClients::new(services), BASE64_STANDARD.encode(signed.cert.pem()));
            Self { clients, address, bundle, accepted, closing, _dir: dir }
        }

        /// Calls the webhook and checks the number of connections so far.
        async fn check_connections(&self, bundle: &str, want: usize) {
            let response = self.clients.call(&self.address, bundle, "{}", Duration::from_secs(9)).await.unwrap();
            assert_eq!((&*response.body, self.accepted.load(Ordering::SeqCst)), (b"/hook?timeout=9s".as_slice(), want));
        }
    }

    async fn serve_webhook(
        listener: TcpListener,
        tls: TlsAcceptor,
        accepted: Arc<AtomicUsize>,
        closed: watch::Receiver<()>,
    ) {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            let (tls, mut closed) = (tls.clone(), closed.clone());
            closed.mark_unchanged();
            tokio::spawn(async move {
                let Ok(stream) = tls.accept(stream).await else { return };
                let service = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let path = request.uri().path_and_query().unwrap().to_string();
                    Ok::<_, Infallible>(http::Response::new(Full::new(Bytes::from(path))))
                });
                let builder = auto::Builder::new(TokioExecutor::new());
                tokio::select! {
                    _ = builder.serve_connection(TokioIo::new(stream), service) => {}
                    _ = closed.changed() => {}
                }
            });
        }
    }

    #[tokio::test]
    async fn calls_share_one_connection() {
        for protocol in ["http/1.1", "h2"] {
            let server = WebhookServer::start(protocol).await;
            for _ in 0..3 {
                server.check_connections(&server.bundle, 1).await;
            }
        }
    }

    #[tokio::test]
    async fn call_after_the_server_closed_the_connection_opens_another() {
        for protocol in ["http/1.1", "h2"] {
            let server = WebhookServer::start(protocol).await;
            for connections in 1..20 {
                server.check_connections(&server.bundle, connections).await;
                server.closing.send_replace(());
            }
        }
    }

    #[tokio::test]
    async fn changed_ca_bundle_does_not_reuse_connections() {
        let server = WebhookServer::start("http/1.1").await;
        server.check_connections(&server.bundle, 1).await;
        let pem = BASE64_STANDARD.decode(&server.bundle).unwrap();
        let twice = BASE64_STANDARD.encode([&*pem, &*pem].concat());
        server.check_connections(&twice, 2).await;
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let other = BASE64_STANDARD.encode(other.cert.pem());
        let error = server.clients.call(&server.address, &other, "{}", Duration::from_secs(9)).await.unwrap_err();
        let WebhookAddress::Url(url) = &server.address else { unreachable!() };
        let want = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
        assert_eq!(error.to_string(), format!("Post \"{url}?timeout=9s\": {want}"));
    }
}
