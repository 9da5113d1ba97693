//! The API server: one pipeline from request to answer, for every resource and every verb.
//!
//! [`Server::serve`] answers HTTPS, [`Server::local`] the components of the same process; both go through
//! [`pipeline`](mod@pipeline): authenticate, authorize, route, then the registry (decode, default, admit, prepare, validate, store) and
//! encode. Everything particular to a resource is a strategy.

#![warn(clippy::large_futures)] // A future is copied whenever it becomes a part of another.

mod activity;
mod admission;
mod aggregate;
mod allocate;
mod audit;
mod authenticate;
pub mod authorize;
mod bootstrap;
mod catalog;
mod clock;
mod components;
mod custom;
mod deadline;
mod document;
mod encode;
#[cfg(test)]
mod fixture;
mod flow;
mod form;
mod gzip;
mod headers;
mod health;
mod impersonate;
mod initializers;
mod joined;
mod listen;
mod live;
mod metrics;
mod outbound;
mod paths;
pub mod pipeline;
mod query;
mod registry;
mod reload;
mod request;
mod reviews;
pub mod served;
mod services;
mod settings;
mod strategies;
mod streams;
mod system;
mod tokens;
mod usage;
mod watch;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, PoisonError, RwLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

pub use admission::{AdmissionSettings, UnknownPlugin};
pub use aggregate::{Aggregation, CertificateError, ClientCertificate};
pub use allocate::network::{Network, NotANetwork};
pub use audit::{
    Audit, BatchSettings, LogSettings, Mode as AuditMode, Policy as AuditPolicy, PolicyError, Truncation,
    WebhookSettings, annotate,
};
pub use authenticate::{
    ALGORITHMS, Authentication, AuthenticationFile, Authority, AuthorityError, ConfigError, JwtIssuer, Mapping,
    ReviewVersion, TableError, TokenWebhook, UserTable, client_verifier,
};
pub use components::Component;
pub use initializers::{PATIENCE as INITIALIZATION, enable as enable_initializers};
pub use outbound::{Endpoint, KubeconfigError, from_kubeconfig};
pub use reload::{Reload, Watched};
pub use settings::{Authorization, Load, Mode, Serving, Settings, Shutdown};
pub use streams::backend::unverified;
pub use tokens::{KeyError, Limits, PublicKey, Tokens};

/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that broke off on its way.
#[derive(Debug, thiserror::Error)]
#[error("the body broke off: {0}")]
pub struct BodyError(#[source] Box<dyn std::error::Error + Send + Sync>);

impl BodyError {
    fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

/// Who sends a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name, for example `system:kube-scheduler`.
    pub name: String,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// Who it is for good, where the authenticator knows.
    pub uid: String,
    /// What else the authenticator says, for example which credential was shown.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Who asks, once that is known.
#[derive(Clone, Debug)]
pub enum Caller {
    /// A component of this process.
    Component(User),
    /// Whoever the chain of authenticators found, be it nobody in particular.
    Client(User),
}

impl Caller {
    fn user(&self) -> &User {
        let (Caller::Component(user) | Caller::Client(user)) = self;
        user
    }

    /// Who it is to authorizers: somebody, even if nobody knows who.
    fn identity(&self) -> &User {
        self.user()
    }
}

/// Where a request comes from.
#[derive(Clone)]
pub(crate) enum Origin {
    /// A component of this process, which needs no credentials.
    Component(User),
    /// A connection.
    Peer(Arc<authenticate::Peer>),
}

impl Origin {
    fn address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Origin::Component(_) => None,
            Origin::Peer(peer) => peer.address,
        }
    }
}

/// What an API server is made of.
pub struct Config {
    /// Where objects are kept.
    pub store: Arc<dyn store::Store>,
    /// How kubelets are reached for logs and exec: the cluster's CA and the client certificate they accept.
    pub kubelet_tls: Arc<rustls::ClientConfig>,
    /// Who signs the tokens of service accounts; without, there are none.
    pub tokens: Option<Tokens>,
}

/// An API server. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Arc<registry::Registry>,
    kubelet_tls: Arc<rustls::ClientConfig>,
    tokens: Option<Arc<Tokens>>,
    authenticator: RwLock<Arc<authenticate::Authenticator>>,
    impersonators: impersonate::Ways,
    /// `None` where nothing is audited.
    auditor: Option<Arc<audit::Auditor>>,
    flow: flow::Flow,
    aggregator: aggregate::Aggregator,
    /// What containers have used.
    usage: Arc<usage::Usage>,
    reloads: reload::Reloads,
    settings: Settings,
    /// What the server says of its API.
    pages: api::discovery::Pages,
    /// The same with custom resources.
    custom_pages: custom::Pages,
    metrics: metrics::Metrics,
    started: jiff::Timestamp,
    /// What works in the background ends with the server.
    _alive: DropGuard,
    /// Cancelled once the server is asked to end: it is not ready from then on.
    ending: CancellationToken,
    /// Cancelled once no new connections are taken, or no new requests: watches end.
    stopping: CancellationToken,
    /// The requests of connections that are being answered.
    requests: TaskTracker,
}

impl Server {
    /// An API server that has created the objects every cluster has.
    pub async fn new(config: Config) -> Result<Self, store::Error> {
        Self::with(config, Settings::default()).await
    }

    /// As [`Self::new`], with other than the usual settings.
    pub async fn with(config: Config, mut settings: Settings) -> Result<Self, store::Error> {
        // Where everybody may do everything, everybody is at least known.
        settings.authentication.anonymous &=
            !settings.authorization.modes.iter().any(|mode| matches!(mode, Mode::AlwaysAllow));
        if settings.initializers.is_some() {
            initializers::enable().map_err(|late| store::Error::Unusable(late.to_string()))?;
            settings.admission.enable("Initializers");
            settings.served.add("admissionregistration.k8s.io", "v1alpha1");
        }
        let pools = allocate::Pools::new(&settings.service_networks, settings.node_ports.clone());
        let registry = Arc::new(registry::Registry::new(config.store, pools, &settings).await?);
        let usage = Arc::new(usage::Usage::default());
        let parts = admission::Parts {
            config: None,
            settings: &settings.admission,
            cache: registry.cache(),
            authorizers: registry.authorizers(),
            usage: &usage,
        };
        let admission = admission::Admission::new(&settings.admission, &parts).map_err(store::Error::Unusable)?;
        registry.set_admission(admission);
        let created = bootstrap::create(&registry, &settings).await;
        created.map_err(unusable)?;
        // What is kept of objects from here on knows those that were just written.
        registry.cache().freshen().await?;
        let alive = CancellationToken::new();
        tokio::spawn(custom::control::run(registry.clone(), alive.clone()));
        let served = settings.served.clone();
        let pages = api::discovery::Pages::new(move |group, version| served.includes(group, version));
        let tokens = config.tokens.map(Arc::new);
        let authenticator = authenticate::Authenticator::new(&settings.authentication, tokens.as_ref(), &registry);
        let flow = flow::Flow::new(&settings.load, registry.cache())?;
        let aggregator = aggregate::Aggregator::new(&settings.aggregation, registry.cache())?;
        let shared = Shared {
            registry,
            kubelet_tls: config.kubelet_tls,
            tokens,
            authenticator: RwLock::new(Arc::new(authenticator)),
            impersonators: impersonate::Ways::default(),
            auditor: audit::Auditor::new(&settings.audit),
            flow,
            aggregator,
            usage,
            reloads: reload::Reloads::default(),
            settings,
            pages,
            custom_pages: custom::Pages::default(),
            metrics: metrics::Metrics::default(),
            started: clock::now(),
            _alive: alive.drop_guard(),
            ending: CancellationToken::new(),
            stopping: CancellationToken::new(),
            requests: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Who knows who may do what.
    pub fn authorizers(&self) -> &authorize::Authorizers {
        self.shared.registry.authorizers()
    }

    /// Who knows who is who.
    fn authenticator(&self) -> Arc<authenticate::Authenticator> {
        self.shared.authenticator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What clients are told of the API: of this server's, custom resources included, and of others' that it leads to.
    fn page(&self, name: &api::discovery::Name) -> Option<api::discovery::Page> {
        let own = |name: &_| self.shared.custom_pages.get(&self.shared.pages, &self.registry().custom().rows(), name);
        self.aggregator().page(name, own)
    }

    /// The rows that there are.
    fn table(&self) -> request::Table<'_> {
        request::Table { served: &self.shared.settings.served, custom: Some(self.registry().custom()) }
    }

    fn aggregator(&self) -> &aggregate::Aggregator {
        &self.shared.aggregator
    }

    fn registry(&self) -> &registry::Registry {
        &self.shared.registry
    }

    /// A service that answers as if `user` had authenticated: how components of this process speak to the server.
    pub fn local(&self, user: User) -> Local {
        Local { server: self.clone(), user }
    }

    /// Answers HTTPS requests on `listener` until `shutdown`, then ends watches and lets other requests end. How `tls` should
    /// ask for certificates is what [`client_verifier`] says.
    pub async fn serve(self, listener: TcpListener, tls: Arc<rustls::ServerConfig>, shutdown: CancellationToken) {
        listen::serve(self, listener, tls, shutdown).await;
    }
}

/// The first objects could not be read or written.
fn unusable(status: api::status::Status) -> store::Error {
    store::Error::Unusable(format!("the cluster's first objects: {}", status.message))
}

/// The server as a tower service of one user.
#[derive(Clone)]
pub struct Local {
    server: Server,
    user: User,
}

impl<B> tower::Service<http::Request<B>> for Local
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (server, user) = (self.server.clone(), self.user.clone());
        let request = request.map(|body| body.map_err(BodyError::new).boxed_unsync());
        Box::pin(pipeline::answer(server, Origin::Component(user), request).map(Ok))
    }
}
