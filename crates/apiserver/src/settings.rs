//! What whoever starts an API server may choose. Every choice has upstream's default.

use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

use admission::AdmissionSettings;
use aggregator::AggregationOptions;
use apiserver_core::resource_config::ApiResourceConfig;
use audit::Audit;
use authn::AuthenticationConfig;
use authz::Authorization;
use flowcontrol::Load;
use registry::{allocate::ip_network::IpNetwork, component_status::ComponentEndpoint};

use crate::reload::ReloadOptions;

/// How an API server behaves. [`Default`] is what upstream does without flags, but for the range of services.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where members of the cluster reach this server; `None`: the service `kubernetes` gets no endpoints.
    pub advertise: Option<(IpAddr, u16)>,
    /// The node port of the service `kubernetes`.
    pub kubernetes_node_port: Option<u16>,
    /// The ranges of service addresses: one, or one of each family.
    pub service_networks: Vec<IpNetwork>,
    /// The range of node ports.
    pub node_ports: RangeInclusive<u16>,
    /// Which credentials are accepted.
    pub authentication: AuthenticationConfig,
    /// Who is asked before a write.
    pub admission: AdmissionSettings,
    /// How aggregated API servers are reached.
    pub aggregation: AggregationOptions,
    /// Who may do what.
    pub authorization: Authorization,
    /// What is kept of who did what.
    pub audit: Audit,
    /// How much is worked on at once.
    pub load: Load,
    /// How connections are served.
    pub serving: ServingOptions,
    /// How the server ends.
    pub shutdown: ShutdownOptions,
    /// Which groups and versions are served.
    pub served: ApiResourceConfig,
    /// Whether other API servers use the store too.
    pub shared_store: bool,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// The other parts of the control plane, of which `componentstatuses` tells.
    pub components: Vec<ComponentEndpoint>,
    /// Which files are read again.
    pub reload: ReloadOptions,
    /// Whether there are initializers, and how long a creation waits for them.
    pub initializers: Option<Duration>,
    /// The commit that was built, for `/version`.
    pub build: BuildInfo,
    /// The flags with their values, for `/flagz`.
    pub flags: Vec<(String, String)>,
    /// This machine's name, for the identity of this server.
    pub host_name: String,
}

/// How connections are served.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// How long the store may take to say that it is well.
    pub store_timeout: Duration,
}

/// How the server ends.
#[derive(Clone, Debug)]
pub struct ShutdownOptions {
    /// How long it goes on serving, not ready.
    pub delay: Duration,
    /// How long requests may go on after that.
    pub drain: Duration,
    /// Whether those that come meanwhile are told to try again, elsewhere; otherwise nobody listens to them.
    pub retry_after: bool,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            advertise: None,
            kubernetes_node_port: None,
            service_networks: "10.96.0.0/16".parse().into_iter().collect(),
            node_ports: 30000..=32767,
            authentication: AuthenticationConfig::default(),
            admission: AdmissionSettings::default(),
            aggregation: AggregationOptions::default(),
            authorization: Authorization::default(),
            audit: Audit::default(),
            load: Load::default(),
            serving: ServingOptions::default(),
            shutdown: ShutdownOptions::default(),
            served: ApiResourceConfig::default(),
            shared_store: false,
            event_ttl: Duration::from_secs(3600),
            components: ComponentEndpoint::default_components(),
            reload: ReloadOptions::default(),
            initializers: None,
            build: BuildInfo::default(),
            flags: Vec::new(),
            host_name: "localhost".into(),
        }
    }
}

impl Default for ServingOptions {
    fn default() -> Self {
        Self { http2: true, streams: 100, store_timeout: Duration::from_secs(2) }
    }
}

impl Default for ShutdownOptions {
    fn default() -> Self {
        Self { delay: Duration::ZERO, drain: Duration::from_secs(3), retry_after: false }
    }
}

/// The commit that a binary was built from.
#[derive(Clone, Debug)]
pub struct BuildInfo {
    /// Commit hash; empty if it is not known.
    pub git_commit: String,
    /// Time of the commit in RFC 3339.
    pub date: String,
}

impl Default for BuildInfo {
    fn default() -> Self {
        Self { git_commit: String::new(), date: "1970-01-01T00:00:00Z".into() }
    }
}
