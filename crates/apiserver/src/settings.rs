//! API server options; defaults match kube-apiserver's flags.

use std::{net::IpAddr, ops::RangeInclusive, time::Duration};

use admission::AdmissionOptions;
use aggregator::AggregationOptions;
use apiserver_core::resource_config::ApiResourceConfig;
use audit::AuditOptions;
use authn::AuthenticationConfig;
use authz::AuthorizationOptions;
use flowcontrol::FlowControlOptions;
use registry::{allocate::ip_network::IpNetwork, component_status::ComponentEndpoint};

use crate::reload::ReloadOptions;

/// API server options. [`Default`] matches kube-apiserver without flags, except for the service CIDR.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The advertised address and port; `None`: the service `kubernetes` gets no endpoints.
    pub advertise: Option<(IpAddr, u16)>,
    /// The node port of the service `kubernetes`.
    pub kubernetes_node_port: Option<u16>,
    /// Service CIDRs: one, or one per IP family.
    pub service_networks: Vec<IpNetwork>,
    /// The range of node ports.
    pub node_ports: RangeInclusive<u16>,
    /// Authentication options.
    pub authentication: AuthenticationConfig,
    /// Admission options.
    pub admission: AdmissionOptions,
    /// Aggregation options.
    pub aggregation: AggregationOptions,
    /// Authorization modes.
    pub authorization: AuthorizationOptions,
    /// Audit options.
    pub audit: AuditOptions,
    /// Flow control and timeout options.
    pub load: FlowControlOptions,
    /// Options of connections and the store health check.
    pub serving: ServingOptions,
    /// Shutdown options.
    pub shutdown: ShutdownOptions,
    /// Enabled group-versions (`--runtime-config`).
    pub served: ApiResourceConfig,
    /// Whether other API servers share the store.
    pub shared_store: bool,
    /// TTL of events.
    pub event_ttl: Duration,
    /// The control plane components that `componentstatuses` reports.
    pub components: Vec<ComponentEndpoint>,
    /// Configuration files that are reloaded.
    pub reload: ReloadOptions,
    /// Timeout of initializers; `None` disables them.
    pub initializers: Option<Duration>,
    /// The commit that was built, for `/version`.
    pub build: BuildInfo,
    /// The flags with their values, for `/flagz`.
    pub flags: Vec<(String, String)>,
    /// This machine's name, for the identity of this server.
    pub host_name: String,
}

/// Options of connections and the store health check.
#[derive(Clone, Debug)]
pub struct ServingOptions {
    /// Whether HTTP/2 is enabled.
    pub http2: bool,
    /// Maximum concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// Timeout of store health checks.
    pub store_timeout: Duration,
}

/// Shutdown options.
#[derive(Clone, Debug)]
pub struct ShutdownOptions {
    /// Time between not ready and the end of watches (`--shutdown-delay-duration`).
    pub delay: Duration,
    /// Timeout of requests in flight after that.
    pub drain: Duration,
    /// Whether requests during shutdown get 429 with `Retry-After` (`--shutdown-send-retry-after`).
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
            admission: AdmissionOptions::default(),
            aggregation: AggregationOptions::default(),
            authorization: AuthorizationOptions::default(),
            audit: AuditOptions::default(),
            load: FlowControlOptions::default(),
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
    /// Commit hash; empty if unknown.
    pub git_commit: String,
    /// Time of the commit in RFC 3339.
    pub date: String,
}

impl Default for BuildInfo {
    fn default() -> Self {
        Self { git_commit: String::new(), date: "1970-01-01T00:00:00Z".into() }
    }
}
