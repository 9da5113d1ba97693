//! Connections to webhooks: to a URL, or to the endpoints of a Service.

use std::{sync::Arc, time::Duration};

use api::{Value, meta};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    http_client::{client_config_builder, load_root_certificates},
    services::ServiceResolver,
};

/// Largest response body.
const MAX_RESPONSE: usize = 3 << 20;

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

/// A webhook with its resolved addresses.
pub struct WebhookClient {
    /// The URL, for messages.
    pub url: String,
    /// The server name of the certificate.
    host: String,
    /// Addresses or DNS names, tried in order.
    addresses: Vec<String>,
    port: u16,
    path: String,
    tls: Arc<ClientConfig>,
}

/// Resolves the address of a webhook.
pub async fn resolve_webhook(
    services: &ServiceResolver,
    address: &WebhookAddress,
    tls: Arc<ClientConfig>,
    timeout: Duration,
) -> Result<WebhookClient, String> {
    let query = format!("timeout={}s", timeout.as_secs());
    match address {
        WebhookAddress::Url(url) => {
            let parsed: http::Uri = url.parse().map_err(|error| format!("parse {url:?}: {error}"))?;
            let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let path = if parsed.path().is_empty() { "/" } else { parsed.path() };
            let path = format!("{path}?{query}");
            let url = format!("{}?{query}", url.split('?').next().unwrap_or_default());
            let port = parsed.port_u16().unwrap_or(443);
            Ok(WebhookClient { url, addresses: vec![host.clone()], host, port, path, tls })
        }
        WebhookAddress::Service { namespace, name, port, path } => {
            let host = format!("{name}.{namespace}.svc");
            let path = format!("/{}?{query}", path.trim_start_matches('/'));
            let url = format!("https://{host}:{port}{path}");
            let endpoints = services.resolve_endpoints(namespace, name, *port).await;
            let (addresses, port) = endpoints.map_err(|error| format!("Post {url:?}: {error}"))?;
            Ok(WebhookClient { url, host, addresses, port, path, tls })
        }
    }
}

impl WebhookClient {
    /// Sends a body and returns the status code and body of the response.
    pub async fn post_body(&self, body: Bytes) -> Result<(u16, Bytes), String> {
        let stream = self.connect().await?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| format!("tls: {error}"))?;
        let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let stream = stream.map_err(|error| format!("tls: failed to verify certificate: {error}"))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let code = response.status().as_u16();
            let body =
                Limited::new(response.into_body(), MAX_RESPONSE).collect().await.map_err(|error| error.to_string())?;
            Ok((code, body.to_bytes()))
        };
        let result = exchange.await;
        connection.abort();
        result
    }

    /// Connects to the first address that accepts a connection.
    async fn connect(&self) -> Result<TcpStream, String> {
        let mut error = "no addresses".to_owned();
        for address in &self.addresses {
            match TcpStream::connect((address.as_str(), self.port)).await {
                Ok(stream) => return Ok(stream),
                Err(cause) if cause.kind() == std::io::ErrorKind::ConnectionRefused => {
                    error = format!("dial tcp {address}:{}: connect: connection refused", self.port);
                }
                Err(cause) => error = format!("dial tcp {address}:{}: {cause}", self.port),
            }
        }
        Err(error)
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

/// Returns a TLS configuration that trusts a base64-encoded CA bundle; the system's CAs without a bundle.
pub fn tls_config_for_bundle(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    let pem = String::from_utf8(pem).map_err(|error| error.to_string())?;
    let roots = load_root_certificates(Some(pem.as_str()).filter(|pem| !pem.is_empty()))?;
    Ok(Arc::new(client_config_builder(roots)?.with_no_client_auth()))
}
