//! The cluster's network in the node process: service proxy and cluster DNS, each under its own identity, and the objects
//! that they need.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use anyhow::Context;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use network::{
    dns::{DnsOptions, DnsServer, DnsService},
    load_balancer::{LoadBalancerController, LoadBalancerPool},
    policy::{NetworkPolicyEngine, NetworkPolicyOptions},
    proxy::{ServiceProxy, ServiceProxyOptions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use sys::net::Ipv4Cidr;
use tokio::net::{TcpListener, UdpSocket};

use crate::{options::UpOptions, shutdown::ComponentSet};

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
    /// That of the network policies.
    pub policy: Client,
    /// That of the DNS server and its service.
    pub dns: Client,
}

/// Starts service proxy and DNS server on this node.
pub async fn start_node_network(
    options: &UpOptions,
    clients: NetworkClients,
    sockets: DnsSockets,
    components: &mut ComponentSet,
) -> anyhow::Result<((), String)> {
    start_proxy(options, clients.proxy, components).await;
    start_policies(options, clients.policy, components);
    let dns = DnsOptions {
        domain: CLUSTER_DOMAIN.into(),
        cluster_cidrs: vec![options.pod_cidr.into(), options.service_cidr.into()],
        own_addresses: vec![options.node_ip, dns_address(options.service_cidr).into()],
        resolv_conf: PathBuf::from(RESOLV_CONF),
    };
    components.start("DNS", |shutdown| async move {
        let server = DnsServer::new(clients.dns, dns, (sockets.udp, sockets.tcp), shutdown.clone())?;
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

fn start_policies(options: &UpOptions, client: Client, components: &mut ComponentSet) {
    let policy = NetworkPolicyOptions {
        node_name: options.node_name.clone(),
        table_name: options.instance.policy_table(),
        node_ranges: vec![options.pod_cidr.into()],
    };
    components.start("network policies", |shutdown| async move {
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
    let write_rules = json!([
        { "apiGroups": [""], "resources": ["services"], "verbs": ["create"] },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create", "patch", "delete"] },
    ]);
    let subjects = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NETWORK_USER }]);
    let role_ref = |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": NETWORK_USER });
    apply::<ClusterRole>(Api::all(admin.clone()), json!({ "rules": rules })).await?;
    let binding = json!({ "roleRef": role_ref("ClusterRole"), "subjects": subjects });
    apply::<ClusterRoleBinding>(Api::all(admin.clone()), binding).await?;
    let system = "kube-system";
    apply::<Role>(Api::namespaced(admin.clone(), system), json!({ "rules": write_rules })).await?;
    let binding = json!({ "roleRef": role_ref("Role"), "subjects": subjects });
    apply::<RoleBinding>(Api::namespaced(admin.clone(), system), binding).await
}

/// Applies an object named after the user.
async fn apply<K>(api: Api<K>, mut object: Value) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    object["apiVersion"] = K::api_version(&()).into();
    object["kind"] = K::kind(&()).into();
    object["metadata"] = json!({ "name": NETWORK_USER });
    api.patch(NETWORK_USER, &PatchParams::apply("ferry").force(), &Patch::Apply(&object)).await.map(drop)
}
