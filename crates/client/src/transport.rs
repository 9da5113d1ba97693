//! The two ways to reach an API server.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, client::Body};
use tower::{BoxError, Service, ServiceExt};

/// A client whose requests go straight into `service`, an API server of this process: no socket, no TLS. `component` is
/// its `User-Agent`, which names the manager of what it writes.
pub fn in_process<S, B>(service: S, component: &'static str) -> Client
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

/// A client over TLS, as the current context of a kubeconfig file says.
pub async fn from_kubeconfig(path: &Path) -> Result<Client, Error> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be read or lacks something.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The TLS configuration is not usable.
    #[error("client: {0}")]
    Client(#[from] kube::Error),
}
