//! The cluster's network in the node process: service proxy and cluster DNS, each under its own identity, and the objects
//! that they need.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::ConfigMap,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use network::{
    dns::{DnsOptions, DnsServer, DnsService},
    load_balancer::{LoadBalancerController, LoadBalancerPool},
    overlay::{BACKEND_KEY, NETWORK_CONFIG_MAP, NetworkBackend, NodeRanges, Overlay, OverlayOptions},
    policy::{NetworkPolicyEngine, NetworkPolicyOptions},
    proxy::{ServiceProxy, ServiceProxyOptions},
};
use serde_json::json;
use sys::net::Ipv4Cidr;
use tokio::{
    net::{TcpListener, UdpSocket},
    sync::watch,
};

use crate::{
    apply_object::{apply_object, role_ref, subject},
    network as node_network,
    options::UpOptions,
    shutdown::ComponentSet,
};

/// The keys of the ranges of pods and services in the network's settings.
pub const POD_CIDR_KEY: &str = "podCIDR";
/// See [`POD_CIDR_KEY`].
pub const SERVICE_CIDR_KEY: &str = "serviceCIDR";
/// The cluster's domain.
pub const CLUSTER_DOMAIN: &str = "cluster.local";
/// The user of DNS servers and network policies.
pub const NETWORK_USER: &str = "system:ferry:network";
/// The port of the proxy's `/healthz`.
const PROXY_HEALTH_PORT: u16 = 10256;
/// The loopback port of the proxy's metrics.
const PROXY_METRICS_PORT: u16 = 10249;
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The address of the DNS service: the tenth of the service range.
pub fn dns_address(services: Ipv4Cidr) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(services.base).wrapping_add(10))
}

/// The sockets of the node's DNS server.
pub struct DnsSockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl DnsSockets {
    /// Takes the port on the node's address.
    pub async fn bind(address: IpAddr, port: u16) -> anyhow::Result<Self> {
        let failed = || format!("cannot listen on {address} port {port} (DNS)");
        let udp = UdpSocket::bind((address, port)).await.with_context(failed)?;
        Ok(Self { udp, tcp: TcpListener::bind((address, port)).await.with_context(failed)? })
    }
}

/// The clients of the network's parts.
pub struct NetworkClients {
    /// That of the service proxy.
    pub proxy: Client,
    /// That of DNS, network policies and overlay.
    pub network: Client,
}

/// Starts overlay, service proxy, network policies and DNS server on this node.
pub async fn start_node_network(
    options: &UpOptions,
    clients: NetworkClients,
    sockets: DnsSockets,
    components: &mut ComponentSet,
) -> anyhow::Result<((), String)> {
    start_proxy(options, clients.proxy, components).await;
    let ranges = start_overlay(options, clients.network.clone(), components);
    start_policies(options, clients.network.clone(), ranges, components);
    let dns = DnsOptions {
        domain: CLUSTER_DOMAIN.into(),
        cluster_cidrs: vec![options.pod_cidr.into(), options.service_cidr.into()],
        own_addresses: vec![options.node_ip, dns_address(options.service_cidr).into()],
        resolv_conf: PathBuf::from(RESOLV_CONF),
    };
    components.start("DNS", |shutdown| async move {
        let server = DnsServer::new(clients.network, dns, (sockets.udp, sockets.tcp), shutdown.clone())?;
        Ok(server.run(shutdown).await?)
    });
    Ok(((), format!("services {}, DNS {}", options.service_cidr, dns_address(options.service_cidr))))
}

async fn start_proxy(options: &UpOptions, client: Client, components: &mut ComponentSet) {
    let proxy_options = ServiceProxyOptions {
        node_ips: vec![options.node_ip],
        cluster_cidrs: vec![options.pod_cidr.into()],
        ..ServiceProxyOptions::new(&options.node_name, &options.instance.proxy_table())
    };
    let health = bind_or_warn(options.node_ip, PROXY_HEALTH_PORT).await;
    let metrics = bind_or_warn(Ipv4Addr::LOCALHOST.into(), PROXY_METRICS_PORT).await;
    components.start("service proxy", |shutdown| async move {
        let proxy = ServiceProxy::new(client, proxy_options, shutdown.clone());
        if let Some(listener) = health {
            proxy.serve_health(listener, shutdown.clone());
        }
        if let Some(listener) = metrics {
            proxy.serve_metrics(listener, shutdown.clone());
        }
        Ok(proxy.run(shutdown).await?)
    });
}

/// Starts the overlay and writes the CNI configuration once the node has its ranges, and whenever they change. A runtime
/// that others set up has a pod network of its own: its pods may have any address of the pod range.
fn start_overlay(
    options: &UpOptions,
    client: Client,
    components: &mut ComponentSet,
) -> watch::Receiver<Option<NodeRanges>> {
    if !options.runtime.is_own() {
        let ranges = NodeRanges { pod_cidrs: vec![options.pod_cidr.into()], mtu: 0 };
        return watch::Sender::new(Some(ranges)).subscribe();
    }
    let (sender, receiver) = watch::channel(None);
    let overlay_options =
        OverlayOptions { node_name: options.node_name.clone(), pod_network: node_network::pod_network_of(options) };
    components.start("overlay", |shutdown| async move {
        Overlay::new(client, overlay_options, sender, shutdown.clone()).run(shutdown).await;
        Ok(())
    });
    let (instance, mut ranges) = (options.instance.clone(), receiver.clone());
    components.start("CNI configuration", |shutdown| async move {
        let write = async {
            while ranges.changed().await.is_ok() {
                if let Some(ranges) = ranges.borrow_and_update().clone() {
                    node_network::write_conflist(&instance, &ranges)?;
                }
            }
            anyhow::Ok(())
        };
        shutdown.run_until_cancelled(write).await.unwrap_or(Ok(()))
    });
    receiver
}

fn start_policies(
    options: &UpOptions,
    client: Client,
    mut ranges: watch::Receiver<Option<NodeRanges>>,
    components: &mut ComponentSet,
) {
    let (node_name, table_name) = (options.node_name.clone(), options.instance.policy_table());
    components.start("network policies", |shutdown| async move {
        let known = async { ranges.wait_for(Option::is_some).await.ok().and_then(|ranges| ranges.clone()) };
        let Some(Some(ranges)) = shutdown.run_until_cancelled(known).await else { return Ok(()) };
        let policy = NetworkPolicyOptions { node_name, table_name, node_ranges: ranges.pod_cidrs };
        Ok(NetworkPolicyEngine::new(client, policy, shutdown.clone()).run(shutdown).await?)
    });
}

/// Another cluster on this machine may have the port; the proxy works without it.
async fn bind_or_warn(address: IpAddr, port: u16) -> Option<TcpListener> {
    match TcpListener::bind((address, port)).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::warn!(%address, port, %error, "service proxy: health or metrics are not served");
            None
        }
    }
}

/// Publishes the DNS service.
pub fn start_dns_service(options: &UpOptions, dns: Client, components: &mut ComponentSet) {
    let service = DnsService { address: dns_address(options.service_cidr).into(), node_port: options.dns_port };
    components.start("DNS service", |shutdown| async move {
        service.run(dns, shutdown).await;
        Ok(())
    });
}

/// Assigns addresses to Services of type LoadBalancer.
pub fn start_load_balancer(options: &UpOptions, client: Client, components: &mut ComponentSet) {
    let pool = options.load_balancer_range.map_or(LoadBalancerPool::Nodes, LoadBalancerPool::Range);
    components.start("load balancer", |shutdown| async move {
        LoadBalancerController::new(client, pool, shutdown.clone()).run(shutdown).await;
        Ok(())
    });
}

/// Applies the RBAC rules of the network's user.
pub async fn apply_network_rules(admin: &Client) -> kube::Result<()> {
    let read = ["get", "list", "watch"];
    let rules = json!([
        { "apiGroups": [""], "resources": ["services", "namespaces", "nodes", "pods"], "verbs": read },
        { "apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"] },
        { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": read },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read },
    ]);
    let system_rules = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": read },
        { "apiGroups": [""], "resources": ["services"], "verbs": ["create"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create", "patch", "delete"] },
    ]);
    let subjects = json!([subject("User", NETWORK_USER)]);
    let role_ref = |kind: &str| role_ref(kind, NETWORK_USER);
    apply_object::<ClusterRole>(Api::all(admin.clone()), NETWORK_USER, json!({ "rules": rules })).await?;
    let binding = json!({ "roleRef": role_ref("ClusterRole"), "subjects": subjects });
    apply_object::<ClusterRoleBinding>(Api::all(admin.clone()), NETWORK_USER, binding).await?;
    let system = "kube-system";
    apply_object::<Role>(Api::namespaced(admin.clone(), system), NETWORK_USER, json!({ "rules": system_rules }))
        .await?;
    let binding = json!({ "roleRef": role_ref("Role"), "subjects": subjects });
    apply_object::<RoleBinding>(Api::namespaced(admin.clone(), system), NETWORK_USER, binding).await
}

/// Publishes the network's settings, which nodes that join and running overlays read.
pub async fn apply_network_settings(options: &UpOptions, admin: &Client) -> kube::Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(admin.clone(), "kube-system");
    let existing = api.get_opt(NETWORK_CONFIG_MAP).await?.and_then(|map| map.data?.remove(BACKEND_KEY));
    let chosen = options.network_backend.map(|backend| backend.to_string());
    let backend = chosen.or(existing).unwrap_or_else(|| NetworkBackend::default().to_string());
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": NETWORK_CONFIG_MAP },
        "data": {
            BACKEND_KEY: backend,
            POD_CIDR_KEY: options.pod_cidr.to_string(),
            SERVICE_CIDR_KEY: options.service_cidr.to_string(),
        },
    });
    api.patch(NETWORK_CONFIG_MAP, &PatchParams::apply("ferry").force(), &Patch::Apply(&map)).await.map(drop)
}
