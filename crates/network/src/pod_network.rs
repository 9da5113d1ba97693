//! The pod network of a node: the table that lets pods out under the node's address and keeps cluster addresses inside, and
//! the routes of the pod and service ranges.
//!
//! Guarantee: a packet for a pod or service leaves the node through a pod's link or the overlay, never as it is through
//! another link.

use std::{io, net::IpAddr, time::Duration};

use sys::{
    net::{self, IpCidr, Route, RouteKind},
    nftables::{
        self, BaseChain, ChainType, Compare, DataType, Expression, Family, Hook, MetaKey, NftError, PayloadBase,
        SetElement, SetKind, SetSpec, TableMonitor, TableName, Transaction, Verdict,
    },
};
use tokio_util::sync::CancellationToken;

/// The delay before a table that another program changed is replaced.
const REPAIR_DELAY: Duration = Duration::from_millis(500);
/// The protocol number of routes to this node's pods and to services.
pub const ROUTE_PROTOCOL: u8 = 201;
/// The protocol number of routes to other nodes' pods.
pub const OVERLAY_PROTOCOL: u8 = 202;
/// The beginning of names of pods' links on the node.
const POD_LINKS: &str = "veth";
const RANGES_SET: &str = "cluster-ranges";
const PODS_SET: &str = "pod-ranges";
/// Pods of other nodes that the uplink leads to, without an overlay.
const DIRECT_SET: &str = "direct-ranges";
const FILTER: i32 = 0;
const SNAT: i32 = 100;

/// The ranges and names of a node's pod network.
#[derive(Clone, Debug)]
pub struct PodNetwork {
    /// The name of the table.
    pub table_name: String,
    /// The range of all pods.
    pub pod_cidr: IpCidr,
    /// The range of services.
    pub service_cidr: IpCidr,
    /// The node's address.
    pub node_ip: IpAddr,
    /// The name of the overlay's link.
    pub overlay_link: String,
}

/// The pod network could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    /// The table was refused.
    #[error(transparent)]
    Table(#[from] NftError),
    /// A route was refused.
    #[error("route of {destination}: {source}")]
    Route {
        /// The destination.
        destination: IpCidr,
        /// The error.
        source: io::Error,
    },
    /// Links or routes could not be read.
    #[error("network links and routes: {0}")]
    Links(#[from] io::Error),
}

impl PodNetwork {
    fn table(&self) -> TableName {
        TableName::new(Family::Ip, &self.table_name)
    }

    /// Replaces the table in one transaction and sets the routes.
    pub fn set_up(&self) -> Result<(), PodNetworkError> {
        let mut changes = Transaction::new();
        self.write_table(&mut changes);
        changes.commit()?;
        for route in self.routes()? {
            let failed = |source| PodNetworkError::Route { destination: route.destination, source };
            net::replace_route(&route).map_err(failed)?;
        }
        Ok(())
    }

    /// Restores the table whenever another program changes it, until `shutdown`.
    pub async fn run_repair(self, shutdown: CancellationToken) -> Result<(), PodNetworkError> {
        let monitor = TableMonitor::new(vec![self.table()])?;
        loop {
            match shutdown.run_until_cancelled(monitor.wait_for_foreign_change()).await {
                None => return Ok(()),
                Some(changed) => changed?,
            }
            tracing::warn!("pod network: another program changed the table, replacing it");
            tokio::time::sleep(REPAIR_DELAY).await;
            monitor.discard_events();
            let network = self.clone();
            let repaired = tokio::task::spawn_blocking(move || network.set_up()).await;
            if let Ok(Err(error)) = repaired {
                tracing::error!(%error, "pod network: table was not replaced");
            }
        }
    }

    /// The routes: addresses without a pod are unreachable, and so are those of other nodes that no overlay leads to.
    /// Services have one so that this node's own connections reach the translation of their destination.
    fn routes(&self) -> Result<Vec<Route>, PodNetworkError> {
        let own = |route: Route| Route { protocol: ROUTE_PROTOCOL, ..route };
        let unreachable = own(Route { kind: RouteKind::Unreachable, ..Route::new(self.pod_cidr, 0) });
        // Through the link of the node's address: errors for packets that would leave through loopback are not delivered.
        let addresses = net::list_addresses()?;
        let own_link = addresses.iter().find(|address| address.ip == self.node_ip).map(|address| address.link);
        let link = own_link.map_or_else(|| net::link_by_name("lo").map(|link| link.index), Ok)?;
        let services = own(Route { source: Some(self.node_ip), ..Route::new(self.service_cidr, link) });
        Ok(vec![unreachable, services])
    }

    fn write_table(&self, changes: &mut Transaction) {
        let table = self.table();
        changes.replace_table(&table);
        let ranges = |name: &str| SetSpec::new(name, &[DataType::Ipv4Address], SetKind::Set).with_intervals();
        for set in [RANGES_SET, PODS_SET, DIRECT_SET] {
            changes.add_set(&table, &ranges(set));
        }
        let elements = |ranges: &[IpCidr]| -> Vec<SetElement> {
            let bounds = ranges.iter().map(IpCidr::bounds);
            bounds.flat_map(|(first, last)| SetElement::range(first, &last)).collect()
        };
        changes.add_elements(&table, RANGES_SET, &elements(&[self.pod_cidr, self.service_cidr]));
        changes.add_elements(&table, PODS_SET, &elements(&[self.pod_cidr]));
        let postrouting = |kind, priority| BaseChain { kind, hook: Hook::Postrouting, priority };
        changes.add_chain(&table, "inside", Some(postrouting(ChainType::Filter, FILTER)));
        changes.add_chain(&table, "outbound", Some(postrouting(ChainType::Nat, SNAT)));
        for chain in ["inside", "outbound"] {
            for link in [exact_name("lo"), POD_LINKS.as_bytes().to_vec(), exact_name(&self.overlay_link)] {
                changes.add_rule(&table, chain, &out_through(link));
            }
        }
        let direct = [load_address(16), in_set(DIRECT_SET, false), Expression::Verdict(Verdict::Accept)];
        changes.add_rule(&table, "inside", &direct);
        let guard =
            [load_address(16), in_set(RANGES_SET, false), Expression::Counter, Expression::Verdict(Verdict::Drop)];
        changes.add_rule(&table, "inside", &guard);
        let masquerade = [
            load_address(12),
            in_set(PODS_SET, false),
            load_address(16),
            in_set(RANGES_SET, true),
            Expression::Masquerade,
        ];
        changes.add_rule(&table, "outbound", &masquerade);
    }

    /// Lets packets for these ranges leave through any link, for pods of nodes that are on one network.
    pub fn set_direct_ranges(&self, ranges: &[IpCidr]) -> Result<(), NftError> {
        let mut changes = Transaction::new();
        changes.flush_set(&self.table(), DIRECT_SET);
        let bounds = ranges.iter().map(IpCidr::bounds);
        let elements: Vec<SetElement> = bounds.flat_map(|(first, last)| SetElement::range(first, &last)).collect();
        changes.add_elements(&self.table(), DIRECT_SET, &elements);
        changes.commit()
    }
}

/// The name with its terminating zero, so that longer names differ.
fn exact_name(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// Accepts packets that leave through a link whose name begins so.
fn out_through(name: Vec<u8>) -> [Expression; 3] {
    [
        Expression::Meta { key: MetaKey::OifName, into: 0 },
        Expression::Compare { from: 0, operation: Compare::Equal, value: name },
        Expression::Verdict(Verdict::Accept),
    ]
}

fn load_address(offset: u32) -> Expression {
    Expression::Payload { base: PayloadBase::Network, offset, length: 4, into: 0 }
}

fn in_set(set: &str, inverted: bool) -> Expression {
    Expression::InSet { set: set.into(), from: 0, inverted }
}

/// Deletes tables by name, in all families; returns whether there were any.
pub fn delete_tables(is_ours: impl Fn(&str) -> bool) -> Result<bool, NftError> {
    let mut changes = Transaction::new();
    for table in nftables::list_tables()?.iter().filter(|table| is_ours(&table.name)) {
        changes.delete_table(table);
    }
    let found = !changes.is_empty();
    changes.commit()?;
    Ok(found)
}

/// Deletes the links of pods in a range and the routes of this crate to `ranges`; returns the names of the links.
pub fn delete_links_and_routes(pod_cidr: IpCidr, ranges: &[IpCidr]) -> Result<Vec<String>, PodNetworkError> {
    let routes = net::list_routes()?;
    let links = net::list_links()?;
    let is_pod = |route: &&Route| route.destination.prefix == 32 && pod_cidr.contains(route.destination.address);
    let mut deleted = Vec::new();
    for route in routes.iter().filter(is_pod) {
        let link = links.iter().find(|link| link.index == route.link && link.name.starts_with(POD_LINKS));
        if let Some(link) = link
            && net::delete_link(&link.name)?
        {
            deleted.push(link.name.clone());
        }
    }
    let is_own = |route: &&Route| [ROUTE_PROTOCOL, OVERLAY_PROTOCOL].contains(&route.protocol);
    for route in routes.iter().filter(is_own) {
        if ranges.iter().any(|range| range.contains(route.destination.address)) {
            net::delete_route(route)?;
        }
    }
    Ok(deleted)
}
