//! The API server: one pipeline from request to answer, for every resource and every verb.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An error of a body on its way.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name, for example `system:kube-scheduler`.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
}

/// What an API server is made of.
pub struct Config {
    /// Where objects are kept.
    pub store: Arc<dyn store::Store>,
    /// How kubelets are reached for logs and exec: the cluster's CA and the client certificate they accept.
    pub kubelet_tls: Arc<rustls::ClientConfig>,
}

/// An API server. Cheap to clone.
#[derive(Clone)]
pub struct Server {}

impl Server {
    /// An API server that has created the objects every cluster has.
    pub async fn new(_config: Config) -> Result<Self, store::Error> {
        Ok(Self {})
    }

    /// A service that answers as if `user` had authenticated: how components of this process speak to the server.
    pub fn local(&self, _user: User) -> Local {
        Local {}
    }

    /// Answers HTTPS requests on `listener` until `shutdown`, then lets running requests end. Client certificates are
    /// verified by `tls`; the subject's CN is the user and its Os are the groups.
    pub async fn serve(self, _listener: TcpListener, _tls: Arc<rustls::ServerConfig>, shutdown: CancellationToken) {
        shutdown.cancelled().await;
    }
}

/// The server as a tower service of one user.
#[derive(Clone)]
pub struct Local {}

impl<B> tower::Service<http::Request<B>> for Local
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = futures::future::BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: http::Request<B>) -> Self::Future {
        Box::pin(futures::future::pending())
    }
}
