//! The plan of an overlay: which routes, neighbours and forwarding entries lead to the pods of other nodes.
//!
//! Pure: nodes in, entries out. The hardware address of a node's VXLAN link follows from its name, so nodes need to know
//! nothing of each other but their Node objects.

use std::net::IpAddr;

use sys::net::{ForwardingEntry, IpCidr, MacAddress, Neighbour, Route};

use super::NetworkBackend;
use crate::{pod_network::OVERLAY_PROTOCOL, views::NodeView};

/// Another node and its pod ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteNode {
    pub name: String,
    pub address: IpAddr,
    pub pod_cidrs: Vec<IpCidr>,
}

impl RemoteNode {
    /// Reads a Node; `None` while it lacks an address or pod ranges.
    pub fn from_view(node: &NodeView) -> Option<Self> {
        let pod_cidrs = pod_cidrs_of(node);
        let address = node.internal_addresses().into_iter().next()?;
        let name = node.metadata.name.clone()?;
        (!pod_cidrs.is_empty()).then_some(Self { name, address, pod_cidrs })
    }
}

/// The pod ranges that a Node has been given.
pub(super) fn pod_cidrs_of(node: &NodeView) -> Vec<IpCidr> {
    node.spec.pod_cidrs.iter().filter_map(|cidr| cidr.parse().ok()).collect()
}

/// The links that a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverlayLinks {
    /// Index of the overlay's link; 0 if the back end has none.
    pub overlay: u32,
    /// Index of the link with the node's address.
    pub underlay: u32,
}

/// Entries of the kernel that lead to other nodes' pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OverlayPlan {
    pub routes: Vec<Route>,
    pub neighbours: Vec<Neighbour>,
    pub forwarding: Vec<ForwardingEntry>,
    /// Ranges whose packets leave through the underlay as they are.
    pub direct_ranges: Vec<IpCidr>,
}

impl OverlayPlan {
    /// Makes the plan for `nodes`, all but the own one.
    pub fn new(backend: NetworkBackend, links: OverlayLinks, source: Option<IpAddr>, nodes: &[RemoteNode]) -> Self {
        let mut plan = Self::default();
        for node in nodes {
            for cidr in &node.pod_cidrs {
                plan.add_range(backend, links, source, node, *cidr);
            }
        }
        plan
    }

    fn add_range(
        &mut self,
        backend: NetworkBackend,
        links: OverlayLinks,
        source: Option<IpAddr>,
        node: &RemoteNode,
        cidr: IpCidr,
    ) {
        let source = source.filter(|source| source.is_ipv4() == cidr.is_ipv4());
        let route = |link| Route { protocol: OVERLAY_PROTOCOL, source, ..Route::new(cidr, link) };
        match backend {
            NetworkBackend::Vxlan => {
                let (mac, gateway) = (hardware_address(&node.name), cidr.first());
                self.routes.push(Route { gateway: Some(gateway), onlink: true, ..route(links.overlay) });
                self.neighbours.push(Neighbour { link: links.overlay, address: gateway, mac });
                let entry = ForwardingEntry { link: links.overlay, mac, host: node.address };
                if !self.forwarding.contains(&entry) {
                    self.forwarding.push(entry);
                }
            }
            NetworkBackend::HostGw => {
                // The gateway's family must be that of the range.
                if node.address.is_ipv4() == cidr.is_ipv4() {
                    let gateway = Some(node.address);
                    self.routes.push(Route { gateway, source: None, ..route(links.underlay) });
                    self.direct_ranges.push(cidr.network());
                }
            }
            NetworkBackend::Udp => self.routes.push(route(links.overlay)),
        }
    }
}

/// The hardware address of a node's VXLAN link: locally administered, 40 bits of a hash of the node's name.
pub(super) fn hardware_address(node_name: &str) -> MacAddress {
    let digest = ring::digest::digest(&ring::digest::SHA256, node_name.as_bytes());
    let hash = digest.as_ref();
    [0x0a, hash[0], hash[1], hash[2], hash[3], hash[4]]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKS: OverlayLinks = OverlayLinks { overlay: 7, underlay: 2 };

    fn node(name: &str, address: &str, cidr: &str) -> RemoteNode {
        RemoteNode { name: name.into(), address: address.parse().unwrap(), pod_cidrs: vec![cidr.parse().unwrap()] }
    }

    #[test]
    fn vxlan_leads_to_the_node_by_its_hardware_address() {
        let nodes = [node("b", "192.0.2.2", "10.42.1.0/24")];
        let plan = OverlayPlan::new(NetworkBackend::Vxlan, LINKS, "10.42.0.0".parse().ok(), &nodes);
        let mac = hardware_address("b");
        assert_eq!(plan.routes[0].gateway, "10.42.1.0".parse().ok());
        assert_eq!((plan.routes[0].link, plan.routes[0].onlink), (7, true));
        assert_eq!(plan.neighbours, [Neighbour { link: 7, address: "10.42.1.0".parse().unwrap(), mac }]);
        assert_eq!(plan.forwarding, [ForwardingEntry { link: 7, mac, host: nodes[0].address }]);
        assert!(plan.direct_ranges.is_empty());
        assert_eq!(mac[0] & 3, 2, "locally administered, unicast");
        assert_ne!(mac, hardware_address("c"));
    }

    #[test]
    fn host_gateway_routes_through_the_underlay() {
        let nodes = [node("b", "192.0.2.2", "10.42.1.0/24"), node("c", "192.0.2.3", "fd00::/64")];
        let plan = OverlayPlan::new(NetworkBackend::HostGw, LINKS, None, &nodes);
        assert_eq!(plan.routes.len(), 1, "a gateway of the other family is no gateway");
        assert_eq!((plan.routes[0].link, plan.routes[0].gateway), (2, "192.0.2.2".parse().ok()));
        assert_eq!(plan.direct_ranges, ["10.42.1.0/24".parse().unwrap()]);
        assert!(plan.neighbours.is_empty() && plan.forwarding.is_empty());
    }

    #[test]
    fn udp_routes_to_the_tunnel() {
        let plan = OverlayPlan::new(NetworkBackend::Udp, LINKS, None, &[node("b", "192.0.2.2", "10.42.1.0/24")]);
        assert_eq!((plan.routes[0].link, plan.routes[0].gateway), (7, None));
    }
}
