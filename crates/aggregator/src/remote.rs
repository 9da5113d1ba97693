//! An aggregated server: its service and HTTP client.

use std::sync::Arc;

use api::{Value, meta};
use apiserver_core::{
    backend::{self, without_verification},
    http_client::{Dialer, HttpClient, TlsConfigError, tls_config_for_bundle},
    services::{ResolveError, ServiceResolver},
};
use http::Uri;
use rustls::{ClientConfig, client::ResolvesClientCert};

/// An aggregated server without a usable TLS configuration. The text is returned to every client request.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A CA bundle contradicts `insecureSkipTLSVerify`.
    #[error("specifying a root certificates file with the insecure flag is not allowed")]
    InsecureWithBundle,
    /// The CA bundle is not base64 of text.
    #[error(transparent)]
    Encoding(TlsConfigError),
    /// The CA bundle has no usable certificate.
    #[error("unable to load root certificates: {0}")]
    CaBundle(TlsConfigError),
}

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
    pub client: Result<HttpClient, Arc<RemoteError>>,
}

impl AggregatedServer {
    /// Creates the server of an `APIService` spec. Returns `before` if it is unchanged, which keeps its connections.
    pub fn new(
        spec: &Value,
        certificate: Option<&Arc<dyn ResolvesClientCert>>,
        before: Option<&Arc<Self>>,
    ) -> Option<Arc<Self>> {
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
        let name = format!("{}.{}.svc", place.name, place.namespace);
        let client = build_tls_config(bundle, insecure, certificate)
            .map(|tls| HttpClient::new(&tls, Dialer::ServerName(name.into())))
            .map_err(Arc::new);
        Some(Arc::new(Self { service_port: place, bundle: bundle.to_owned(), insecure, client }))
    }

    /// Resolves an endpoint of the service as `host:port`.
    pub async fn resolve_authority(&self, services: &ServiceResolver) -> Result<String, ResolveError> {
        let ServicePort { namespace, name, port } = &self.service_port;
        let (addresses, port) = services.resolve_endpoints(namespace, name, *port).await?;
        let address = addresses.first().ok_or_else(|| ResolveError::NoEndpoints(name.clone()))?;
        Ok(backend::join_host_port(address, port))
    }
}

/// Builds an `https` URL; `path` includes the query.
pub fn build_url(authority: &str, path: &str) -> Result<Uri, http::Error> {
    Uri::builder().scheme("https").authority(authority).path_and_query(path).build()
}

fn build_tls_config(
    bundle: &str,
    insecure: bool,
    certificate: Option<&Arc<dyn ResolvesClientCert>>,
) -> Result<Arc<ClientConfig>, RemoteError> {
    if insecure && !bundle.is_empty() {
        return Err(RemoteError::InsecureWithBundle);
    }
    let mut config = tls_config_for_bundle(bundle).map_err(|error| match error {
        TlsConfigError::Base64(_) | TlsConfigError::Utf8(_) => RemoteError::Encoding(error),
        error => RemoteError::CaBundle(error),
    })?;
    if let Some(certificate) = certificate {
        config.client_auth_cert_resolver = certificate.clone();
    }
    Ok(if insecure { without_verification(&config) } else { Arc::new(config) })
}
