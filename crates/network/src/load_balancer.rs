//! Addresses for Services of type LoadBalancer: those of the nodes, or of a range that others route to the nodes.
//!
//! A Service keeps its addresses as long as they are valid. On the nodes' addresses a port belongs to one Service, and never
//! to one that a program of this node listens on; a Service that gets nothing stays pending, with the reason in the
//! log. Services with a `loadBalancerClass` are another implementation's.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use client::SharedInformer;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use serde_json::json;
use sys::net::IpCidr;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

const RETRY: Duration = Duration::from_secs(1);

/// Source of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadBalancerPool {
    /// All nodes' internal addresses.
    Nodes,
    /// One address of a range for each Service.
    Range(IpCidr),
}

/// Protocol and port of a Service.
type PortKey = (String, i32);

/// Assigns addresses.
pub struct LoadBalancerController {
    pool: LoadBalancerPool,
    client: Client,
    services: SharedInformer<Service>,
    nodes: SharedInformer<Node>,
    changed: Arc<Notify>,
}

impl LoadBalancerController {
    /// Starts the informers.
    pub fn new(client: Client, pool: LoadBalancerPool, shutdown: CancellationToken) -> Self {
        let every = watcher::Config::default;
        let services = SharedInformer::start(Api::all(client.clone()), every(), shutdown.clone());
        let nodes = SharedInformer::start(Api::all(client.clone()), every(), shutdown);
        let changed: Arc<Notify> = Arc::default();
        let notify = changed.clone();
        services.add_event_handler(move |_: &client::ResourceEvent<Service>| notify.notify_one());
        let notify = changed.clone();
        nodes.add_event_handler(move |_: &client::ResourceEvent<Node>| notify.notify_one());
        Self { pool, client, services, nodes, changed }
    }

    /// Keeps the addresses assigned until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let work = async {
            self.services.wait_for_cache_sync().await;
            self.nodes.wait_for_cache_sync().await;
            loop {
                match self.sync().await {
                    Ok(()) => self.changed.notified().await,
                    Err(error) => {
                        tracing::warn!(%error, "load balancer: addresses were not assigned, retrying");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        };
        shutdown.run_until_cancelled(work).await;
    }

    async fn sync(&self) -> Result<(), kube::Error> {
        let mut services = self.services.list();
        services.sort_by_key(|service| (service.metadata.creation_timestamp.clone(), name_of(service)));
        let nodes = node_addresses(&self.nodes.list());
        let assigned = assign_addresses(&self.pool, &nodes, &services, is_port_in_use);
        for service in &services {
            let wanted = assigned.get(&name_of(service)).cloned().unwrap_or_default();
            let is_ours = is_balanced(service);
            let stale = !is_ours && !current_addresses(service).is_empty() && !is_load_balancer(service);
            if (is_ours || stale) && wanted != current_addresses(service) {
                self.write_addresses(service, &wanted).await?;
            }
        }
        Ok(())
    }

    async fn write_addresses(&self, service: &Service, addresses: &[IpAddr]) -> Result<(), kube::Error> {
        let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
        let name = service.metadata.name.as_deref().unwrap_or_default();
        if addresses.is_empty() && is_balanced(service) {
            tracing::warn!(
                namespace,
                name,
                "load balancer: no address with these ports is free, service stays pending"
            );
        }
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip.to_string(), "ipMode": "VIP" })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        let api: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await {
            Err(error) if client::ApiErrorExt::is_not_found(&error) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

/// Chooses the addresses of every Service, the oldest first; those that have valid ones keep them.
fn assign_addresses(
    pool: &LoadBalancerPool,
    nodes: &[IpAddr],
    services: &[Arc<Service>],
    is_in_use: impl Fn(&PortKey) -> bool,
) -> HashMap<String, Vec<IpAddr>> {
    let mut taken: BTreeSet<(IpAddr, PortKey)> = BTreeSet::new();
    let mut assigned: HashMap<String, Vec<IpAddr>> = HashMap::new();
    let balanced: Vec<&Arc<Service>> = services.iter().filter(|service| is_balanced(service)).collect();
    let (settled, open): (Vec<_>, Vec<_>) = balanced.into_iter().partition(|service| {
        let current = current_addresses(service);
        let is_valid = match pool {
            LoadBalancerPool::Nodes => current == nodes,
            LoadBalancerPool::Range(range) => current.len() == 1 && current.iter().all(|ip| range.contains(*ip)),
        };
        is_valid && !current.is_empty()
    });
    for service in settled.into_iter().chain(open) {
        let ports = ports_of(service);
        let is_free = |ip: IpAddr, taken: &BTreeSet<(IpAddr, PortKey)>| {
            ports.iter().all(|port| !taken.contains(&(ip, port.clone())))
        };
        let current = current_addresses(service);
        let chosen: Vec<IpAddr> = match pool {
            LoadBalancerPool::Nodes => {
                let is_usable = current == nodes || !ports.iter().any(&is_in_use);
                let all = nodes.iter().all(|ip| is_free(*ip, &taken));
                if all && is_usable { nodes.to_vec() } else { Vec::new() }
            }
            LoadBalancerPool::Range(range) => {
                let asked = service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.as_ref()?.parse().ok());
                let candidates = current.into_iter().chain(asked).chain(range_addresses(*range));
                let unused = |ip: &IpAddr| range.contains(*ip) && !assigned.values().flatten().any(|used| used == ip);
                candidates.filter(unused).take(1).collect()
            }
        };
        for ip in &chosen {
            taken.extend(ports.iter().map(|port| (*ip, port.clone())));
        }
        assigned.insert(name_of(service), chosen);
    }
    assigned
}

fn range_addresses(range: IpCidr) -> impl Iterator<Item = IpAddr> {
    let (first, last) = (range.first(), range.last());
    let mut next = Some(first);
    std::iter::from_fn(move || {
        let ip = next?;
        next = (ip < last).then(|| match ip {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) + 1).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) + 1).into()),
        });
        Some(ip)
    })
}

fn name_of(service: &Service) -> String {
    crate::views::object_key(&service.metadata)
}

fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
}

fn is_balanced(service: &Service) -> bool {
    let has_class = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_some());
    is_load_balancer(service) && !has_class && service.metadata.deletion_timestamp.is_none()
}

fn ports_of(service: &Service) -> Vec<PortKey> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.map(|port| (port.protocol.clone().unwrap_or_else(|| "TCP".into()), port.port)).collect()
}

fn current_addresses(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.iter().flat_map(|status| status.ingress.iter().flatten());
    ingress.filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
}

fn node_addresses(nodes: &[Arc<Node>]) -> Vec<IpAddr> {
    let addresses = nodes.iter().filter_map(|node| node.status.as_ref()?.addresses.as_ref()).flatten();
    let internal = addresses.filter(|address| address.type_ == "InternalIP");
    let mut ips: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}

/// Whether a program of this node listens on a TCP port.
fn is_port_in_use(port: &PortKey) -> bool {
    let (protocol, number) = port;
    let number = u16::try_from(*number).unwrap_or_default();
    protocol == "TCP" && sys::process::find_listener(number).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, port: i32, current: &[&str]) -> Arc<Service> {
        let ingress: Vec<_> = current.iter().map(|ip| json!({ "ip": ip })).collect();
        let object = json!({
            "metadata": { "name": name, "namespace": "d" },
            "spec": { "type": "LoadBalancer", "ports": [{ "port": port }] },
            "status": { "loadBalancer": { "ingress": ingress } },
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    /// Assigns and shows the number of addresses by name.
    fn check(pool: &LoadBalancerPool, services: &[Arc<Service>]) -> Vec<(String, Vec<String>)> {
        let nodes = ["192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap()];
        let assigned = assign_addresses(pool, &nodes, services, |port| port.1 == 6443);
        let mut shown: Vec<_> = assigned
            .into_iter()
            .map(|(name, ips)| (name, ips.iter().map(IpAddr::to_string).collect::<Vec<_>>()))
            .collect();
        shown.sort();
        shown
    }

    #[test]
    fn port_of_a_node_belongs_to_one_service() {
        let both = vec!["192.0.2.1".to_owned(), "192.0.2.2".to_owned()];
        let services = [service("a", 80, &[]), service("b", 80, &["192.0.2.1", "192.0.2.2"]), service("c", 443, &[])];
        let assigned = check(&LoadBalancerPool::Nodes, &services);
        assert_eq!(assigned, [("d/a".into(), vec![]), ("d/b".into(), both.clone()), ("d/c".into(), both)]);
        let own = check(&LoadBalancerPool::Nodes, &[service("api", 6443, &[])]);
        assert_eq!(own, [("d/api".into(), vec![])]);
    }

    #[test]
    fn range_gives_each_service_its_own_address() {
        let pool = LoadBalancerPool::Range("198.51.100.0/31".parse().unwrap());
        let services = [service("a", 80, &[]), service("b", 80, &["198.51.100.0"]), service("c", 80, &[])];
        let assigned = check(&pool, &services);
        assert_eq!(assigned[0].1, ["198.51.100.1"]);
        assert_eq!(assigned[1].1, ["198.51.100.0"]);
        assert!(assigned[2].1.is_empty());
    }
}
