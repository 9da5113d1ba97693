//! One aggregated server: the service that leads to it, and how to speak to what is behind it.

use std::sync::Arc;

use api::{Value, meta};
use apiserver_core::{Body, backend::{self, without_verification}, http_client, services::ServiceResolver};
use base64::{Engine, prelude::BASE64_STANDARD};
use http::Uri;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;

use super::{ClientCertificate, connect::Connector};

/// Speaks HTTP/1.1 over connections that are used again.
pub type HttpClient = Client<Connector, Body>;

/// The place of an aggregated server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The namespace of its service.
    pub namespace: String,
    /// The name of its service.
    pub name: String,
    /// The port of its service.
    pub port: u16,
}

/// An aggregated server.
pub struct Remote {
    /// Where it is.
    pub place: Place,
    /// Whom to trust, in base64 of PEM; empty: the authorities of this machine.
    bundle: String,
    /// Whether anybody there is trusted.
    insecure: bool,
    /// An error is one that every client is told.
    pub client: Result<HttpClient, String>,
}

impl Remote {
    /// As an API service says; `before`, if it says the same, so that connections are used again.
    pub fn new(spec: &Value, certificate: Option<&ClientCertificate>, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let service = meta::value_at(spec, &["service"]).filter(|service| service.is_object())?;
        let text = |field: &str| meta::string_at(service, &[field]).to_owned();
        let port = meta::value_at(service, &["port"]).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let place = Place { namespace: text("namespace"), name: text("name"), port: port.unwrap_or(443) };
        let (bundle, insecure) = (meta::string_at(spec, &["caBundle"]), spec["insecureSkipTLSVerify"] == true);
        if let Some(before) = before
            && (&before.place, before.bundle.as_str(), before.insecure) == (&place, bundle, insecure)
        {
            return Some(before.clone());
        }
        let client = tls(bundle, insecure, certificate).map(|tls| client(&place, tls));
        Some(Arc::new(Self { place, bundle: bundle.to_owned(), insecure, client }))
    }

    /// An address behind the service, as URLs have it.
    pub async fn resolve(&self, services: &ServiceResolver) -> Result<String, String> {
        let Place { namespace, name, port } = &self.place;
        let (addresses, port) = services.resolve_endpoints(namespace, name, *port).await?;
        let address = addresses.first().ok_or_else(|| format!("no endpoints available for service {name:?}"))?;
        Ok(backend::join_host_port(address, port))
    }
}

/// The URL of a path, query included, at an address.
pub fn url(authority: &str, path: &str) -> Result<Uri, String> {
    let url = Uri::builder().scheme("https").authority(authority).path_and_query(path).build();
    url.map_err(|error| error.to_string())
}

fn tls(bundle: &str, insecure: bool, certificate: Option<&ClientCertificate>) -> Result<Arc<ClientConfig>, String> {
    let pem = BASE64_STANDARD.decode(bundle).map_err(|error| error.to_string())?;
    let pem = String::from_utf8(pem).map_err(|error| error.to_string())?;
    if insecure && !pem.is_empty() {
        return Err("specifying a root certificates file with the insecure flag is not allowed".into());
    }
    let roots = match (insecure, pem.as_str()) {
        (true, _) => rustls::RootCertStore::empty(),
        (false, "") => http_client::load_root_certificates(None)?,
        (false, pem) => {
            http_client::load_root_certificates(Some(pem)).map_err(|why| format!("unable to load root certificates: {why}"))?
        }
    };
    let mut config = http_client::client_config_builder(roots)?.with_no_client_auth();
    if let Some(certificate) = certificate {
        certificate.show(&mut config);
    }
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(if insecure { without_verification(&config) } else { Arc::new(config) })
}

fn client(place: &Place, tls: Arc<ClientConfig>) -> HttpClient {
    let name = format!("{}.{}.svc", place.name, place.namespace).into();
    Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(Connector { tls, name })
}
