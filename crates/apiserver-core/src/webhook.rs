//! Connections to webhooks: to a URL, or to a service of the cluster by the addresses behind it.

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
    http_client::{client_tls, trusting},
    services::Services,
};

/// The largest answer that is read.
const MOST: usize = 3 << 20;

/// Where a webhook is.
pub enum HookPlace {
    /// Anywhere.
    Url(String),
    /// A service of the cluster.
    Service {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
        /// The path.
        path: String,
    },
}

/// Where a webhook is reached.
pub struct Reached {
    /// What is asked for, as messages have it.
    pub url: String,
    /// The name on the certificate.
    host: String,
    /// Addresses or names to try, and the port.
    addresses: Vec<String>,
    port: u16,
    path: String,
    tls: Arc<ClientConfig>,
}

/// Finds out where a place is, of a webhook of whatever kind.
pub async fn reach_place(
    services: &Services,
    place: &HookPlace,
    tls: Arc<ClientConfig>,
    timeout: Duration,
) -> Result<Reached, String> {
    let query = format!("timeout={}s", timeout.as_secs());
    match place {
        HookPlace::Url(url) => {
            let parsed: http::Uri = url.parse().map_err(|error| format!("parse {url:?}: {error}"))?;
            let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
            let path = if parsed.path().is_empty() { "/" } else { parsed.path() };
            let path = format!("{path}?{query}");
            let url = format!("{}?{query}", url.split('?').next().unwrap_or_default());
            let port = parsed.port_u16().unwrap_or(443);
            Ok(Reached { url, addresses: vec![host.clone()], host, port, path, tls })
        }
        HookPlace::Service { namespace, name, port, path } => {
            let host = format!("{name}.{namespace}.svc");
            let path = format!("/{}?{query}", path.trim_start_matches('/'));
            let url = format!("https://{host}:{port}{path}");
            let found = services.endpoints(namespace, name, *port).await;
            let (addresses, port) = found.map_err(|why| format!("Post {url:?}: {why}"))?;
            Ok(Reached { url, host, addresses, port, path, tls })
        }
    }
}

impl Reached {
    /// Sends a body and reads the answer.
    pub async fn post(&self, body: Bytes) -> Result<(u16, Bytes), String> {
        let stream = self.dial().await?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| format!("tls: {error}"))?;
        let connected = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
        let connected = connected.map_err(|error| format!("tls: failed to verify certificate: {error}"))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(connected)).await.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let request = Request::post(&self.path)
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(body))
            .map_err(|error| error.to_string())?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
            let code = response.status().as_u16();
            let body = Limited::new(response.into_body(), MOST).collect().await.map_err(|error| error.to_string())?;
            Ok((code, body.to_bytes()))
        };
        let answered = answered.await;
        connection.abort();
        answered
    }

    /// The first address that answers.
    async fn dial(&self) -> Result<TcpStream, String> {
        let mut why = "no addresses".to_owned();
        for address in &self.addresses {
            match TcpStream::connect((address.as_str(), self.port)).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    why = format!("dial tcp {address}:{}: connect: connection refused", self.port);
                }
                Err(error) => why = format!("dial tcp {address}:{}: {error}", self.port),
            }
        }
        Err(why)
    }
}

/// Where a client configuration leads.
pub fn place(config: &Value) -> HookPlace {
    let Some(service) = meta::value_at(config, &["service"]) else {
        return HookPlace::Url(meta::string_at(config, &["url"]).to_owned());
    };
    let text = |field: &str| meta::string_at(service, &[field]).to_owned();
    let port = meta::value_at(service, &["port"]).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    HookPlace::Service {
        namespace: text("namespace"),
        name: text("name"),
        port: port.unwrap_or(443),
        path: text("path"),
    }
}

/// TLS with whoever a bundle of authorities vouches for; without a bundle, those that this machine trusts.
pub fn trust(bundle: &str) -> Result<Arc<ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    let pem = String::from_utf8(pem).map_err(|error| error.to_string())?;
    let roots = trusting(Some(pem.as_str()).filter(|pem| !pem.is_empty()))?;
    Ok(Arc::new(client_tls(roots)?.with_no_client_auth()))
}
