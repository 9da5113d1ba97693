//! An aggregated server: its service and HTTP client.

use std::sync::Arc;

use api::{Value, meta};
use apiserver_core::{
    Body,
    backend::{self, without_verification},
    http_client,
    services::ServiceResolver,
};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Uri;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;

use super::{ClientCertificate, connect::ServiceConnector};

/// An HTTP/1.1 client with a connection pool.
pub type HttpClient = Client<ServiceConnector, Body>;

/// The service and port of an aggregated server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServicePort {
    /// The namespace of its service.
    pub namespace: String,
    /// The name of its service.
    pub name: String,
    /// The port of its service.
    pub port: u16,
}

/// An aggregated server.
pub struct AggregatedServer {
    /// Its service and port.
    pub service_port: ServicePort,
    /// The CA bundle as base64 of PEM; empty: the system's roots.
    bundle: String,
    /// Whether the server certificate is not verified.
    insecure: bool,
    /// The client; an error is returned to every client request.
    pub client: Result<HttpClient, String>,
}

impl AggregatedServer {
    /// Creates the server of an `APIService` spec. Returns `before` if it is unchanged, which keeps its connections.
    pub fn new(spec: &Value, certificate: Option<&ClientCertificate>, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let service = meta::value_at(spec, &["service"]).filter(|service| service.is_object())?;
        let text = |field: &str| meta::string_at(service, &[field]).to_owned();
        let port = meta::value_at(service, &["port"]).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let place = ServicePort { namespace: text("namespace"), name: text("name"), port: port.unwrap_or(443) };
        let (bundle, insecure) = (meta::string_at(spec, &["caBundle"]), spec["insecureSkipTLSVerify"] == true);
        if let Some(before) = before
            && (&before.service_port, before.bundle.as_str(), before.insecure) == (&place, bundle, insecure)
        {
            return Some(before.clone());
        }
        let client = build_tls_config(bundle, insecure, certificate).map(|tls| build_client(&place, tls));
        Some(Arc::new(Self { service_port: place, bundle: bundle.to_owned(), insecure, client }))
    }

    /// Resolves an endpoint of the service as `host:port`.
    pub async fn resolve_authority(&self, services: &ServiceResolver) -> Result<String, String> {
        let ServicePort { namespace, name, port } = &self.service_port;
        let (addresses, port) = services.resolve_endpoints(namespace, name, *port).await?;
        let address = addresses.first().ok_or_else(|| format!("no endpoints available for service {name:?}"))?;
        Ok(backend::join_host_port(address, port))
    }
}

/// Builds an `https` URL; `path` includes the query.
pub fn build_url(authority: &str, path: &str) -> Result<Uri, String> {
    let url = Uri::builder().scheme("https").authority(authority).path_and_query(path).build();
    url.map_err(|error| error.to_string())
}

fn build_tls_config(
    bundle: &str,
    insecure: bool,
    certificate: Option<&ClientCertificate>,
) -> Result<Arc<ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    let pem = String::from_utf8(pem).map_err(|error| error.to_string())?;
    if insecure && !pem.is_empty() {
        return Err("specifying a root certificates file with the insecure flag is not allowed".into());
    }
    let roots = match (insecure, pem.as_str()) {
        (true, _) => rustls::RootCertStore::empty(),
        (false, "") => http_client::load_root_certificates(None)?,
        (false, pem) => http_client::load_root_certificates(Some(pem))
            .map_err(|why| format!("unable to load root certificates: {why}"))?,
    };
    let mut config = http_client::client_config_builder(roots)?.with_no_client_auth();
    if let Some(certificate) = certificate {
        certificate.install_in(&mut config);
    }
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(if insecure { without_verification(&config) } else { Arc::new(config) })
}

fn build_client(place: &ServicePort, tls: Arc<ClientConfig>) -> HttpClient {
    let name = format!("{}.{}.svc", place.name, place.namespace).into();
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(ServiceConnector { tls, name })
}
