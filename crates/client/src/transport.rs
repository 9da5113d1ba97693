//! Builds clients: in-process or over TLS.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderValue, header::USER_AGENT};
use hyper_util::rt::TokioExecutor;
use kube::{
    Client,
    client::{Body, ConfigExt},
};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;
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

/// Returns a client whose requests are handled on `runtime`, for callers on another runtime.
///
/// An in-process API server would otherwise run on the caller's threads. A dropped request is cancelled.
pub fn client_on_runtime(client: Client, runtime: Handle) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let client = client.clone();
        let task = AbortOnDropHandle::new(runtime.spawn(async move { client.send(request).await }));
        async move { Ok::<_, BoxError>(task.await??) }
    });
    Client::new(service, "default")
}

/// Returns a client for the current context of a kubeconfig file.
pub async fn client_from_kubeconfig(path: &Path) -> Result<Client, ClientError> {
    let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The clients of a component that runs beside an API server of another process.
pub struct ComponentClients {
    /// Has the credentials of the kubeconfig.
    pub authenticated: Client,
    /// Reaches the same server without credentials.
    pub anonymous: Client,
}

/// Returns the clients for a kubeconfig file or the URL of an API server, which overrides that of the file.
pub async fn component_clients(
    kubeconfig: Option<&Path>,
    server: Option<&str>,
    component: &'static str,
) -> Result<ComponentClients, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?
        }
        None => kube::Config::new(http::Uri::default()),
    };
    if let Some(server) = server {
        config.cluster_url = server.parse().map_err(|_| ClientError::InvalidServer(server.into()))?;
    }
    config.headers.push((USER_AGENT, HeaderValue::from_static(component)));
    let mut anonymous = config.clone();
    anonymous.auth_info = Default::default();
    Ok(ComponentClients { authenticated: Client::try_from(config)?, anonymous: Client::try_from(anonymous)? })
}

/// Returns a client of the API server at `server` with this TLS configuration, whose client certificate may change.
/// `component` becomes the `User-Agent`.
pub fn tls_client(server: &str, tls: ClientConfig, component: &'static str) -> Result<Client, ClientError> {
    let url = server.parse().map_err(|_| ClientError::InvalidServer(server.into()))?;
    let config = kube::Config::new(url);
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .enable_http2()
        .build();
    let pool = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |mut request: http::Request<Body>| {
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(component));
            request
        })
        .map_err(BoxError::from)
        .service(pool);
    Ok(Client::new(service, "default"))
}

/// A client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig is unreadable or incomplete.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// The address is not a URL.
    #[error("{0:?} is not the URL of an API server")]
    InvalidServer(String),
    /// The TLS configuration is invalid.
    #[error("client: {0}")]
    Client(#[from] kube::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_are_handled_on_the_given_runtime() {
        let server =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("server").build().unwrap();
        let thread_name = |_: http::Request<Body>| async {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            Ok::<_, BoxError>(http::Response::new(Body::from(name.into_bytes())))
        };
        let client = {
            let _entered = server.enter();
            in_process_client(tower::service_fn(thread_name), "test")
        };
        let request = || http::Request::get("/").body(Vec::new()).unwrap();
        let direct = client.request_text(request()).await.unwrap();
        assert_ne!(direct, "server");
        let handled = client_on_runtime(client, server.handle().clone()).request_text(request()).await.unwrap();
        assert_eq!(handled, "server");
        server.shutdown_background();
    }
}
