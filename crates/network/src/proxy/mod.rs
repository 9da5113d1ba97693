//! The service proxy: Services and EndpointSlices as nf_tables maps.
//!
//! Informer events mark services as changed; one task plans the changed ones and applies the difference in a transaction
//! per IP family. A foreign change of the table, or a refused transaction, replaces the table. When the process ends the
//! table stays, so connections and services go on.

mod elements;
mod endpoints;
mod family_service;
mod health;
mod metrics;
mod plan;
mod programmer;
mod service_health;
mod stale_connections;
mod sync;
mod table;

use std::{
    collections::HashSet,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use client::SharedInformer;
use http::{Response, StatusCode};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, Client, runtime::watcher};
use sys::{
    net::IpCidr,
    nftables::{self, Family, TableMonitor, TableName, Transaction},
};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::sync::CancellationToken;

use crate::{
    http_server::{ResponseBody, body_of, serve_http},
    views::{EndpointSliceView, NodeView, ServiceView, object_key},
};
use health::ProxyHealth;
use metrics::ProxyMetrics;
use sync::ProxySync;

/// The shortest time between two replacements of the table after foreign changes.
const REPAIR_DELAY: Duration = Duration::from_millis(500);
/// Delay before a refused transaction is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The index of slices by service.
const SERVICE_INDEX: &str = "service";

/// The addresses on which node ports are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// The node's own addresses.
    Primary,
    /// Local addresses in these ranges.
    Ranges(Vec<IpCidr>),
}

/// Options of the service proxy.
#[derive(Clone, Debug)]
pub struct ServiceProxyOptions {
    /// This node.
    pub node_name: String,
    /// The node's addresses; empty takes them from the Node.
    pub node_ips: Vec<IpAddr>,
    /// The name of the tables.
    pub table_name: String,
    /// Ranges of pod addresses: traffic from elsewhere to a cluster address is masqueraded.
    pub cluster_cidrs: Vec<IpCidr>,
    /// Takes those ranges from the Node too.
    pub use_node_cidrs: bool,
    /// Addresses on which node ports are served.
    pub node_port_addresses: NodePortAddresses,
    /// Masquerade all traffic to cluster addresses.
    pub masquerade_all: bool,
    /// The bit of packet marks that asks for masquerading.
    pub masquerade_bit: u8,
    /// The shortest time between two syncs.
    pub min_sync_period: Duration,
}

impl ServiceProxyOptions {
    /// Upstream's defaults for a node.
    pub fn new(node_name: &str, table_name: &str) -> Self {
        Self {
            node_name: node_name.into(),
            node_ips: Vec::new(),
            table_name: table_name.into(),
            cluster_cidrs: Vec::new(),
            use_node_cidrs: false,
            node_port_addresses: NodePortAddresses::Primary,
            masquerade_all: false,
            masquerade_bit: 14,
            min_sync_period: Duration::ZERO,
        }
    }
}

/// The service proxy of a node.
pub struct ServiceProxy {
    options: ServiceProxyOptions,
    services: SharedInformer<ServiceView>,
    slices: SharedInformer<EndpointSliceView>,
    nodes: SharedInformer<NodeView>,
    cidrs: SharedInformer<ServiceCIDR>,
    health: Arc<ProxyHealth>,
    metrics: Arc<ProxyMetrics>,
    pending: Arc<PendingServices>,
}

/// Services that changed since the last sync.
#[derive(Default)]
struct PendingServices {
    keys: Mutex<HashSet<String>>,
    changed: Notify,
}

impl PendingServices {
    fn mark(&self, key: String) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.changed.notify_one();
    }

    fn take(&self) -> Vec<String> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

impl ServiceProxy {
    /// Starts the informers.
    pub fn new(client: Client, options: ServiceProxyOptions, shutdown: CancellationToken) -> Self {
        let own_node = watcher::Config::default().fields(&format!("metadata.name={}", options.node_name));
        let every = watcher::Config::default;
        let proxy = Self {
            services: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            slices: SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone()),
            nodes: SharedInformer::start(Api::all(client.clone()), own_node, shutdown.clone()),
            cidrs: SharedInformer::start(Api::all(client), every(), shutdown),
            health: Arc::default(),
            metrics: Arc::default(),
            pending: Arc::default(),
            options,
        };
        proxy.slices.add_index(SERVICE_INDEX, |slice| slice.service_key().into_iter().collect());
        proxy.follow_changes();
        proxy
    }

    fn follow_changes(&self) {
        let observe = |is_service: bool| {
            let (pending, health, metrics) = (self.pending.clone(), self.health.clone(), self.metrics.clone());
            move |key: Option<String>| {
                if let Some(key) = key {
                    metrics.record_change(is_service);
                    health.record_pending();
                    pending.mark(key);
                }
            }
        };
        let changed = observe(true);
        self.services.add_event_handler(move |event| changed(Some(object_key(&event.object().metadata))));
        let changed = observe(false);
        self.slices.add_event_handler(move |event| {
            if let client::ResourceEvent::Updated { old, .. } = event {
                changed(old.service_key());
            }
            changed(event.object().service_key());
        });
        let pending = self.pending.clone();
        self.nodes.add_event_handler(move |_| pending.changed.notify_one());
        let pending = self.pending.clone();
        self.cidrs.add_event_handler(move |_| pending.changed.notify_one());
    }

    /// Serves `/healthz` and `/livez`.
    pub fn serve_health(&self, listener: TcpListener, shutdown: CancellationToken) {
        let health = self.health.clone();
        let respond = move |path: &str| health.respond(path).unwrap_or_else(not_found);
        tokio::spawn(serve_http(listener, respond, shutdown));
    }

    /// Serves `/metrics`, `/healthz` and `/proxyMode`.
    pub fn serve_metrics(&self, listener: TcpListener, shutdown: CancellationToken) {
        let (metrics, health) = (self.metrics.clone(), self.health.clone());
        let respond = move |path: &str| match path {
            "/metrics" => text_response(metrics.render() + &client::metrics::render_component_metrics()),
            "/proxyMode" => text_response("nftables".into()),
            other => health.respond(other).unwrap_or_else(not_found),
        };
        tokio::spawn(serve_http(listener, respond, shutdown));
    }

    /// Keeps the tables in step until `shutdown`. They stay afterwards.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ProxyError> {
        let all_synced = async {
            self.services.wait_for_cache_sync().await;
            self.slices.wait_for_cache_sync().await;
            self.nodes.wait_for_cache_sync().await;
            self.cidrs.wait_for_cache_sync().await;
        };
        if shutdown.run_until_cancelled(all_synced).await.is_none() {
            return Ok(());
        }
        let families = [Some(Family::Ip), sys::net::has_ipv6().then_some(Family::Ip6)];
        let tables = families.into_iter().flatten().map(|family| TableName::new(family, &self.options.table_name));
        let monitor = TableMonitor::new(tables.collect()).map_err(ProxyError::Monitor)?;
        let mut sync = ProxySync::new(&self);
        loop {
            let keys = self.pending.take();
            let behind = sync.run(&self, keys).await;
            let retry = async {
                match behind {
                    true => tokio::time::sleep(RETRY_DELAY).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = self.pending.changed.notified() => tokio::time::sleep(self.options.min_sync_period).await,
                () = retry => {}
                changed = monitor.wait_for_foreign_change() => {
                    changed.map_err(ProxyError::Monitor)?;
                    tracing::warn!("service proxy: another program changed the table, replacing it");
                    sync.replace_tables();
                    tokio::time::sleep(REPAIR_DELAY).await;
                    monitor.discard_events();
                }
            }
        }
    }
}

/// Deletes the tables of a service proxy; absent ones are fine.
pub fn remove_tables(table_name: &str) -> Result<(), sys::nftables::NftError> {
    let mut changes = Transaction::new();
    for table in nftables::list_tables()?.iter().filter(|table| table.name == table_name) {
        changes.delete_table(table);
    }
    changes.commit()
}

fn not_found() -> Response<ResponseBody> {
    let mut response = Response::new(body_of("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn text_response(text: String) -> Response<ResponseBody> {
    let mut response = Response::new(body_of(text));
    let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// The service proxy cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// Changes of the tables cannot be observed.
    #[error("cannot observe changes of nf_tables: {0}")]
    Monitor(std::io::Error),
}
