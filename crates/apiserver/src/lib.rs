//! The API server: one request pipeline for every resource and verb.
//!
//! [`Server::serve_connections`] answers HTTPS, [`Server::local_service`] the components of the same process; both go through
//! [`pipeline`](mod@pipeline): authenticate, authorize, route, then the registry (decode, default, admit, prepare, validate, store) and
//! encode. Everything particular to a resource is a strategy.

#![warn(clippy::large_futures)] // A future is copied whenever it becomes a part of another.

mod activity;
mod bootstrap;
mod connect;
mod deadline;
mod encode;
#[cfg(test)]
mod fixture;
mod gzip;
mod headers;
mod health;
mod impersonate;
mod indent;
mod list_encoder;
mod listen;
mod metrics;
mod paths;
pub mod pipeline;
mod reload;
mod settings;
#[cfg(test)]
mod tests;
mod usage_sampler;
mod watch;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

pub use admission::{AdmissionOptions, PluginFlagError};
pub use aggregator::AggregationOptions;
pub use apiserver_core::{
    Body, BodyError, Caller, User,
    audit::annotate,
    backend::without_verification,
    http_client::{Endpoint, KubeconfigError, endpoint_from_kubeconfig},
    initializers::{INITIALIZATION_TIMEOUT as INITIALIZATION, enable_initializers},
    resource_config as served,
};
use apiserver_core::{request, storage::ObjectStorage};
pub use audit::{
    AuditOptions, BackendMode as AuditMode, BatchConfig, LogBackendConfig, Policy as AuditPolicy, PolicyError,
    TruncateConfig, WebhookBackendConfig,
};
pub use authn::{
    ALGORITHMS, AuthenticationConfig, AuthenticationConfigError, AuthenticationFile, CaBundle, CaBundleError,
    ClaimMapping, ClientCertificateVerifier, JwtIssuer, KeyError, PublicKey, ReviewVersion, TokenIssuer, TokenLimits,
    TokenWebhook, UserTable, UserTableError, client_verifier,
};
pub use authz::{self as authorize, AuthorizationMode, AuthorizationOptions};
use bytes::Bytes;
pub use flowcontrol::FlowControlOptions;
use futures::{
    FutureExt,
    future::{BoxFuture, LocalBoxFuture},
};
use http_body_util::BodyExt;
use registry::{
    VirtualResource, VirtualResources, component_status::ComponentStatusHandler, reviews::ReviewHandler,
    token_request::TokenRequestHandler,
};
pub use registry::{
    allocate::ip_network::{IpNetwork, ParseNetworkError},
    component_status::ComponentEndpoint,
};
pub use reload::{ReloadOptions, WatchedFile};
pub use settings::{BuildInfo, ServerOptions, ServingOptions, ShutdownOptions};
use tokio::net::TcpListener;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

/// The origin of a request.
#[derive(Clone)]
pub(crate) enum RequestOrigin {
    /// A component of this process, which needs no credentials.
    Component(User),
    /// A client connection.
    Peer(Arc<authn::ConnectionPeer>),
}

impl RequestOrigin {
    fn peer_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            RequestOrigin::Component(_) => None,
            RequestOrigin::Peer(peer) => peer.address,
        }
    }
}

/// The resources whose objects are reviews.
const REVIEW_RESOURCES: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// The components that an API server is built from.
pub struct ServerConfig {
    /// The object store.
    pub store: Arc<dyn store::Store>,
    /// TLS configuration of kubelet connections: the cluster's CA and the kubelet client certificate.
    pub kubelet_tls: Arc<rustls::ClientConfig>,
    /// Signs and verifies service account tokens; `None` disables them.
    pub tokens: Option<TokenIssuer>,
}

/// An API server. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    shared: Arc<ServerState>,
}

struct ServerState {
    registry: Arc<registry::Registry>,
    kubelet_tls: Arc<rustls::ClientConfig>,
    tokens: Option<Arc<TokenIssuer>>,
    authenticator: Arc<authn::ReloadableAuthenticator>,
    /// The configuration of the current authenticators.
    authentication: Mutex<AuthenticationConfig>,
    impersonation_modes: impersonate::LastModeCache,
    /// `None` if auditing is disabled.
    auditor: Option<Arc<audit::Auditor>>,
    flow_controller: Arc<flowcontrol::FlowController>,
    aggregator: Arc<aggregator::Aggregator>,
    /// Resource usage of containers.
    usage: Arc<admission::container_usage::ContainerUsage>,
    reloads: reload::ReloadMetrics,
    options: ServerOptions,
    /// Discovery and OpenAPI documents of built-in resources.
    built_in_documents: api::document_cache::DocumentCache,
    /// Discovery and OpenAPI documents including custom resources.
    crd_documents: apiextensions::CrdDocumentCache,
    metrics: metrics::ServerMetrics,
    started: jiff::Timestamp,
    /// Cancels background tasks when the server is dropped.
    _alive: DropGuard,
    /// Cancelled when shutdown begins: the server is not ready from then on.
    shutting_down: CancellationToken,
    /// Cancelled after the shutdown delay: watches end.
    stopping: CancellationToken,
    /// The requests in flight.
    requests: TaskTracker,
}

impl Server {
    /// Creates an API server with default options and writes the bootstrap objects.
    pub async fn new(config: ServerConfig) -> Result<Self, store::StoreError> {
        Self::with_options(config, ServerOptions::default()).await
    }

    /// As [`Self::new`], with options.
    pub fn with_options(
        config: ServerConfig,
        settings: ServerOptions,
    ) -> LocalBoxFuture<'static, Result<Self, store::StoreError>> {
        Box::pin(Self::build(config, settings))
    }

    async fn build(config: ServerConfig, mut settings: ServerOptions) -> Result<Self, store::StoreError> {
        // With AlwaysAllow, anonymous requests are rejected, as upstream does.
        settings.authentication.anonymous &=
            !settings.authorization.modes.iter().any(|mode| matches!(mode, AuthorizationMode::AlwaysAllow));
        if settings.initializers.is_some() {
            enable_initializers().map_err(|late| store::StoreError::Unusable(late.to_string()))?;
            settings.admission.enable_plugin("Initializers");
            settings.served.enable_version("admissionregistration.k8s.io", "v1alpha1");
        }
        let config_of_registry = registry::RegistryConfig {
            service_networks: &settings.service_networks,
            node_ports: settings.node_ports.clone(),
            authorization: &settings.authorization,
            event_ttl: settings.event_ttl,
            initialization_timeout: settings.initializers.unwrap_or_default(),
        };
        let registry = Arc::new(registry::Registry::new(config.store, config_of_registry).await?);
        let usage = Arc::new(admission::container_usage::ContainerUsage::default());
        let parts = admission::PluginInit {
            config: None,
            toleration_seconds: settings.admission.toleration_seconds,
            cache: registry.cache(),
            authorizers: registry.authorizers(),
            usage: &usage,
            metrics: &Arc::default(),
        };
        let admission = admission::AdmissionChain::new(&settings.admission, &parts);
        let admission = admission.map_err(|error| store::StoreError::Unusable(error.to_string()))?;
        registry.set_admission(admission);
        let created = bootstrap::create_objects(&registry, &settings).await;
        created.map_err(bootstrap_error)?;
        // Indexes that are made from here on contain the objects that were just written.
        registry.cache().wait_until_synced().await?;
        let alive = CancellationToken::new();
        let crd_controller =
            apiextensions::crd_status_controller::run(registry.clone(), registry.crds().clone(), alive.clone());
        tokio::spawn(crd_controller);
        let served = settings.served.clone();
        let pages = api::document_cache::DocumentCache::new(move |group, version| served.includes(group, version));
        let tokens = config.tokens.map(Arc::new);
        let storage: Arc<dyn ObjectStorage> = registry.clone();
        let authenticator = authn::Authenticator::new(&settings.authentication, tokens.as_ref(), &storage)
            .map_err(|error| store::StoreError::Unusable(error.to_string()))?;
        let authenticator = Arc::new(authn::ReloadableAuthenticator::new(authenticator));
        registry.set_virtual_resources(virtual_resources(&authenticator, tokens.as_ref(), &settings));
        let flow = flowcontrol::FlowController::new(&settings.load, registry.store(), registry.cache())?;
        let stopping = CancellationToken::new();
        let aggregator =
            aggregator::Aggregator::new(&settings.aggregation, storage, registry.cache(), stopping.clone())?;
        let shared = ServerState {
            registry,
            kubelet_tls: config.kubelet_tls,
            tokens,
            authenticator,
            impersonation_modes: impersonate::LastModeCache::default(),
            auditor: audit::Auditor::new(&settings.audit),
            flow_controller: Arc::new(flow),
            aggregator: Arc::new(aggregator),
            usage,
            authentication: Mutex::new(settings.authentication.clone()),
            reloads: reload::ReloadMetrics::default(),
            options: settings,
            built_in_documents: pages,
            crd_documents: apiextensions::CrdDocumentCache::default(),
            metrics: metrics::ServerMetrics::default(),
            started: apiserver_core::clock::now(),
            _alive: alive.drop_guard(),
            shutting_down: CancellationToken::new(),
            stopping,
            requests: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The authorizer chain.
    pub fn authorizers(&self) -> &authz::Authorizers {
        self.shared.registry.authorizers()
    }

    /// The current authenticator chain.
    fn authenticator(&self) -> Arc<authn::Authenticator> {
        self.shared.authenticator.get()
    }

    /// A discovery or OpenAPI document of the whole API, custom and aggregated resources included.
    fn api_document(&self, name: &api::document_cache::DocumentName) -> Option<api::cached_document::CachedDocument> {
        let own = |name: &_| {
            self.shared.crd_documents.get(
                &self.shared.built_in_documents,
                &self.registry().crds().served_resources(),
                name,
            )
        };
        self.aggregator().merged_document(name, own)
    }

    /// Resolves resource paths to built-in and custom resources.
    fn resource_resolver(&self) -> request::ResourceResolver<'_> {
        request::ResourceResolver { served: &self.shared.options.served, custom: Some(&**self.registry().crds()) }
    }

    fn aggregator(&self) -> &Arc<aggregator::Aggregator> {
        &self.shared.aggregator
    }

    fn registry(&self) -> &Arc<registry::Registry> {
        &self.shared.registry
    }

    /// A service for components of this process, whose requests are authenticated as `user`.
    pub fn local_service(&self, user: User) -> LocalService {
        LocalService { server: self.clone(), user }
    }

    /// Serves HTTPS on `listener` until `shutdown`, then ends watches and drains other requests. [`client_verifier`]
    /// builds the client certificate verifier of `tls`.
    pub fn serve(
        self,
        listener: TcpListener,
        tls: Arc<rustls::ServerConfig>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(listen::serve_connections(self, listener, tls, shutdown))
    }
}

/// The resources that are computed and not stored.
fn virtual_resources(
    authenticator: &Arc<authn::ReloadableAuthenticator>,
    tokens: Option<&Arc<TokenIssuer>>,
    settings: &ServerOptions,
) -> VirtualResources {
    let mut resources = VirtualResources::default();
    let reviews: Arc<dyn VirtualResource> = Arc::new(ReviewHandler { authenticator: Arc::downgrade(authenticator) });
    for (group, resource) in REVIEW_RESOURCES {
        resources.register_handler(group, resource, "", reviews.clone());
    }
    resources.register_handler(
        "",
        "serviceaccounts",
        "token",
        Arc::new(TokenRequestHandler { tokens: tokens.cloned() }),
    );
    let components = ComponentStatusHandler { components: settings.components.clone() };
    resources.register_handler("", "componentstatuses", "", Arc::new(components));
    resources
}

/// A failed read or write of bootstrap objects.
fn bootstrap_error(status: api::status::Status) -> store::StoreError {
    store::StoreError::Unusable(format!("bootstrap objects: {}", status.message))
}

/// A tower service that sends requests of one user to the server.
#[derive(Clone)]
pub struct LocalService {
    server: Server,
    user: User,
}

impl<B> tower::Service<http::Request<B>> for LocalService
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
        handle_local(server, user, request)
    }
}

/// Handles a request of a component of this process. Not generic, so that the pipeline is compiled once, here.
fn handle_local(
    server: Server,
    user: User,
    request: http::Request<Body>,
) -> BoxFuture<'static, Result<http::Response<Body>, Infallible>> {
    Box::pin(pipeline::handle_request(server, RequestOrigin::Component(user), request).map(Ok))
}
