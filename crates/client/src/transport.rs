//! Builds clients: in-process or over TLS.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, client::Body};
use tower::{BoxError, Service, ServiceExt};

/// Returns a client whose requests go straight into `service`, the API server of this process, without socket or TLS.
/// `component` becomes the `User-Agent`, and so the field manager of its writes.
pub fn in_process_client<S, B>(service: S, component: &'static str) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let named = service.map_request(move |mut request: http::Request<Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(component));
        request
    });
    Client::new(named, "default")
}

/// Returns a client for the current context of a kubeconfig file.
pub async fn client_from_kubeconfig(path: &Path) -> Result<Client, ClientError> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is unreadable or incomplete.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The TLS configuration is invalid.
    #[error("client: {0}")]
    Client(#[from] kube::Error),
}
