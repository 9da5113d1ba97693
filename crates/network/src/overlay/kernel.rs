//! The kernel's side of an overlay: links, routes, neighbours and forwarding entries, brought to a plan by difference.

use std::{io, net::IpAddr};

use sys::net::{self, IpCidr, NetworkLink, Route, VxlanSpec};

use super::plan::{OverlayPlan, hardware_address};
use crate::pod_network::OVERLAY_PROTOCOL;

/// The UDP port of VXLAN, the kernel's own default.
const VXLAN_PORT: u16 = 8472;

/// The link that has the node's address.
pub(super) fn underlay_link(node_ip: IpAddr) -> io::Result<NetworkLink> {
    let address = net::list_addresses()?.into_iter().find(|address| address.ip == node_ip);
    let links = net::list_links()?;
    let found = address.and_then(|address| links.into_iter().find(|link| link.index == address.link));
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no link has the node's address {node_ip}")))
}

/// A VXLAN link to make or keep.
pub(super) struct VxlanLink<'a> {
    pub name: &'a str,
    pub node_name: &'a str,
    pub node_ip: IpAddr,
    pub id: u32,
    pub underlay: u32,
    pub mtu: u32,
}

impl VxlanLink<'_> {
    /// Makes the link unless it is there with the right hardware address; returns its index.
    pub fn ensure(&self) -> io::Result<u32> {
        let mac = hardware_address(self.node_name);
        match net::find_link(self.name)? {
            Some(link) if link.mac == Some(mac) => {
                if link.mtu != self.mtu {
                    net::set_mtu(link.index, self.mtu)?;
                }
                return Ok(link.index);
            }
            Some(_) => net::delete_link(self.name).map(drop)?,
            None => {}
        }
        let spec =
            VxlanSpec { id: self.id, local: self.node_ip, underlay: self.underlay, port: VXLAN_PORT, mtu: self.mtu };
        net::create_vxlan(self.name, mac, &spec)?;
        Ok(net::link_by_name(self.name)?.index)
    }
}

/// Gives the overlay's link its addresses and sets it up.
pub(super) fn configure_link(link: u32, addresses: &[IpAddr]) -> io::Result<()> {
    for address in addresses {
        net::ensure_address(link, IpCidr::host(*address))?;
    }
    let wanted = |ip: IpAddr| addresses.contains(&ip);
    for stale in net::list_addresses()?.iter().filter(|address| address.link == link && address.global) {
        if !wanted(stale.ip) {
            net::delete_address(link, IpCidr { address: stale.ip, prefix: stale.prefix })?;
        }
    }
    net::set_link_up(link, true)
}

/// Makes the kernel's entries those of the plan: new ones first, then stale ones are deleted. `pods` bounds which routes
/// are this cluster's.
pub(super) fn apply_plan(plan: &OverlayPlan, overlay: u32, pods: IpCidr) -> io::Result<()> {
    if overlay != 0 {
        let (neighbours, forwarding) = (net::list_neighbours(overlay)?, net::list_forwarding(overlay)?);
        for entry in plan.forwarding.iter().filter(|entry| !forwarding.contains(entry)) {
            net::replace_forwarding(entry)?;
        }
        for neighbour in plan.neighbours.iter().filter(|neighbour| !neighbours.contains(neighbour)) {
            net::replace_neighbour(neighbour)?;
        }
        for stale in neighbours.iter().filter(|neighbour| !plan.neighbours.contains(neighbour)) {
            net::delete_neighbour(stale)?;
        }
        for stale in forwarding.iter().filter(|entry| !plan.forwarding.contains(entry)) {
            net::delete_forwarding(stale)?;
        }
    }
    let routes = own_routes(pods)?;
    for route in plan.routes.iter().filter(|route| !routes.contains(route)) {
        net::replace_route(route).map_err(|error| {
            let via = route.gateway.map(|gateway| format!(" by {gateway}")).unwrap_or_default();
            io::Error::new(error.kind(), format!("route to {}{via}: {error}", route.destination))
        })?;
    }
    let is_planned = |route: &Route| plan.routes.iter().any(|planned| planned.destination == route.destination);
    for stale in routes.iter().filter(|route| !is_planned(route)) {
        net::delete_route(stale)?;
    }
    Ok(())
}

/// The overlay's routes to pods.
fn own_routes(pods: IpCidr) -> io::Result<Vec<Route>> {
    let is_own = |route: &Route| route.protocol == OVERLAY_PROTOCOL && pods.contains(route.destination.address);
    Ok(net::list_routes()?.into_iter().filter(is_own).collect())
}
