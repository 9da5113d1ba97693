//! One sync of the proxy: from the informers' caches to the kernel, in both IP families.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use sys::{
    net::{self, IpCidr, octets},
    nftables::{Family, SetElement, TableName},
};

use super::{
    NodePortAddresses, SERVICE_INDEX, ServiceProxy,
    elements::{PlacedElement, SetName},
    endpoints::{NodeTopology, PortEndpoints},
    family_service::FamilyService,
    programmer::{ServiceChange, TableProgrammer},
    service_health::ServiceHealthServers,
    stale_connections::ChangedFrontends,
    table::ProxyTable,
};
use crate::{
    ranges::range_elements,
    views::{EndpointSliceView, ServiceView},
};

/// The table of one family, behind a lock because it is changed on a blocking thread.
#[derive(Clone)]
struct FamilyTable {
    is_ipv4: bool,
    programmer: Arc<Mutex<TableProgrammer>>,
}

/// The state of the sync loop.
pub(super) struct ProxySync {
    families: Vec<FamilyTable>,
    topology: NodeTopology,
    health_ports: ServiceHealthServers,
    is_first: bool,
}

impl ProxySync {
    pub fn new(proxy: &ServiceProxy) -> Self {
        let options = &proxy.options;
        let table = |family| ProxyTable {
            table: TableName::new(family, &options.table_name),
            masquerade_mark: 1u32.checked_shl(options.masquerade_bit.into()).unwrap_or(1 << 14),
            masquerade_all: options.masquerade_all,
        };
        let family = |family| FamilyTable {
            is_ipv4: family == Family::Ip,
            programmer: Arc::new(Mutex::new(TableProgrammer::new(table(family), Vec::new()))),
        };
        let mut families = vec![family(Family::Ip)];
        if net::has_ipv6() {
            families.push(family(Family::Ip6));
        }
        Self {
            families,
            topology: NodeTopology::default(),
            health_ports: ServiceHealthServers::new(proxy.health.clone()),
            is_first: true,
        }
    }

    /// Makes the next sync replace the tables.
    pub fn replace_tables(&mut self) {
        for family in &self.families {
            lock(&family.programmer).replace_on_next_apply();
        }
    }

    /// Applies the changes of these services; returns whether a table is still behind.
    pub async fn run(&mut self, proxy: &ServiceProxy, mut keys: Vec<String>) -> bool {
        let began = Instant::now();
        let node = proxy.nodes.get("", &proxy.options.node_name);
        let zone = node.as_ref().map(|node| node.zone().to_owned()).unwrap_or_default();
        proxy.health.set_eligible(node.as_ref().is_none_or(|node| node.is_eligible()));
        let topology = NodeTopology { node_name: proxy.options.node_name.clone(), zone };
        if self.is_first || topology != self.topology {
            keys = proxy.services.list().iter().map(|service| crate::views::object_key(&service.metadata)).collect();
        }
        (self.topology, self.is_first) = (topology, false);
        let mut is_behind = false;
        for family in &self.families {
            is_behind |= !self.sync_family(proxy, family, &keys).await;
        }
        for key in &keys {
            self.update_health_port(proxy, key).await;
        }
        proxy.metrics.record_sync(began.elapsed(), !is_behind);
        if !is_behind {
            proxy.health.record_update();
        }
        is_behind
    }

    /// Applies the changes in one family; returns whether it is up to date.
    async fn sync_family(&self, proxy: &ServiceProxy, family: &FamilyTable, keys: &[String]) -> bool {
        let addresses = node_port_addresses(proxy);
        let fixed = fixed_elements(proxy, family.is_ipv4, &addresses);
        let changes: Vec<ServiceChange> = keys.iter().map(|key| self.service_change(proxy, family, key)).collect();
        {
            let mut programmer = lock(&family.programmer);
            let changed = programmer.set_fixed(fixed);
            if changes.is_empty() && !changed && !programmer.is_behind() {
                return true;
            }
        }
        let (programmer, metrics) = (family.programmer.clone(), proxy.metrics.clone());
        let applied = tokio::task::spawn_blocking(move || {
            let changes = lock(&programmer).apply(changes)?;
            let stale = ChangedFrontends::collect(&changes).delete_stale(&addresses);
            match stale {
                Ok(count) => metrics.record_deleted_connections(count),
                Err(error) => tracing::warn!(%error, "service proxy: stale connections were not deleted"),
            }
            Ok::<_, sys::nftables::NftError>(())
        });
        match applied.await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, ipv4 = family.is_ipv4, "service proxy: table was not changed, retrying");
                false
            }
            Err(error) => {
                tracing::error!(%error, "service proxy: sync failed, retrying");
                lock(&family.programmer).replace_on_next_apply();
                false
            }
        }
    }

    fn service_change(&self, proxy: &ServiceProxy, family: &FamilyTable, key: &str) -> ServiceChange {
        let service = find_service(proxy, key).and_then(|view| FamilyService::from_view(&view, family.is_ipv4));
        let slices: Vec<SliceRef> = proxy.slices.by_index(SERVICE_INDEX, key).into_iter().map(SliceRef).collect();
        let endpoints = service.iter().flat_map(|service| {
            service.ports.iter().map(|port| {
                let scope = (family.is_ipv4, &self.topology);
                PortEndpoints::merge(&slices, port, scope).choose(service, port)
            })
        });
        ServiceChange { key: key.into(), endpoints: endpoints.collect(), service }
    }

    async fn update_health_port(&mut self, proxy: &ServiceProxy, key: &str) {
        let service = find_service(proxy, key);
        let is_checked = |service: &ServiceView| {
            service.spec.kind.as_deref() == Some("LoadBalancer")
                && service.spec.external_traffic_policy.as_deref() == Some("Local")
        };
        let port = service.filter(|service| is_checked(service));
        let port = port.and_then(|service| service.spec.health_check_node_port).filter(|port| *port != 0);
        let count = |family: &FamilyTable| lock(&family.programmer).plan(key).map_or(0, |plan| plan.local_ready());
        let local = self.families.iter().map(count).max().unwrap_or_default();
        self.health_ports.update(key, port, local).await;
    }
}

/// A slice for [`PortEndpoints::merge`].
struct SliceRef(Arc<EndpointSliceView>);

impl AsRef<EndpointSliceView> for SliceRef {
    fn as_ref(&self) -> &EndpointSliceView {
        &self.0
    }
}

fn lock(programmer: &Mutex<TableProgrammer>) -> std::sync::MutexGuard<'_, TableProgrammer> {
    programmer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find_service(proxy: &ServiceProxy, key: &str) -> Option<Arc<ServiceView>> {
    let (namespace, name) = key.split_once('/')?;
    proxy.services.get(namespace, name)
}

/// The addresses on which node ports are served.
fn node_port_addresses(proxy: &ServiceProxy) -> Vec<IpAddr> {
    match &proxy.options.node_port_addresses {
        NodePortAddresses::Primary if !proxy.options.node_ips.is_empty() => proxy.options.node_ips.clone(),
        NodePortAddresses::Primary => {
            let node = proxy.nodes.get("", &proxy.options.node_name);
            node.map(|node| node.internal_addresses()).unwrap_or_default()
        }
        NodePortAddresses::Ranges(ranges) => {
            let local = net::list_addresses().unwrap_or_default().into_iter().map(|address| address.ip);
            let mut wanted: Vec<IpAddr> =
                local.filter(|ip| !ip.is_loopback() && ranges.iter().any(|range| range.contains(*ip))).collect();
            wanted.sort_unstable();
            wanted.dedup();
            wanted
        }
    }
}

/// The elements that no service brings.
fn fixed_elements(proxy: &ServiceProxy, is_ipv4: bool, addresses: &[IpAddr]) -> Vec<PlacedElement> {
    let node = proxy.nodes.get("", &proxy.options.node_name).filter(|_| proxy.options.use_node_cidrs);
    let node_cidrs = node.iter().flat_map(|node| node.spec.pod_cidrs.iter().filter_map(|text| text.parse().ok()));
    let pods: Vec<IpCidr> = proxy.options.cluster_cidrs.iter().copied().chain(node_cidrs).collect();
    let service_cidrs = proxy.cidrs.list();
    let services = service_cidrs.iter().filter_map(|cidr| cidr.spec.as_ref()?.cidrs.as_ref()).flatten();
    let services: Vec<IpCidr> = services.filter_map(|text| text.parse().ok()).collect();
    let mut fixed = placed_ranges(SetName::ClusterCidrs, &pods, is_ipv4);
    fixed.extend(placed_ranges(SetName::ServiceCidrs, &services, is_ipv4));
    let own = addresses.iter().filter(|ip| ip.is_ipv4() == is_ipv4);
    fixed.extend(own.map(|ip| (SetName::NodePortAddresses, SetElement::key(octets(*ip)))));
    fixed
}

fn placed_ranges(set: SetName, ranges: &[IpCidr], is_ipv4: bool) -> Vec<PlacedElement> {
    range_elements(ranges, is_ipv4).into_iter().map(|element| (set, element)).collect()
}
