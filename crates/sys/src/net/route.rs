//! Routes over rtnetlink.

use std::{io, net::IpAddr};

use super::{IpCidr, cidr::octets, family_of, parse_ip};
use crate::netlink::{self, AttributeBuffer, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, parse_attributes, read_u32};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const MAIN_TABLE: u8 = 254;
const RTPROT_STATIC: u8 = 4;
const SCOPE_LINK: u8 = 253;
const ONLINK: u32 = 4;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;

/// Type of a route: its action on packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RouteKind {
    /// They are sent.
    #[default]
    Unicast,
    /// They are refused with an ICMP error.
    Unreachable,
    /// They are dropped.
    Blackhole,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The route's type.
    pub kind: RouteKind,
    /// The destination.
    pub destination: IpCidr,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// Index of the outgoing interface; 0 if the kind needs none.
    pub link: u32,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// The next hop is on the link although no address of the link says so.
    pub onlink: bool,
    /// The protocol number, which tells who made the route.
    pub protocol: u8,
    /// The metric.
    pub metric: Option<u32>,
    /// The MTU of the path.
    pub mtu: Option<u32>,
}

impl Route {
    /// A route to `destination` through a link.
    pub fn new(destination: IpCidr, link: u32) -> Self {
        Self {
            kind: RouteKind::Unicast,
            destination: destination.network(),
            gateway: None,
            link,
            source: None,
            onlink: false,
            protocol: RTPROT_STATIC,
            metric: None,
            mtu: None,
        }
    }

    fn encode(&self) -> AttributeBuffer {
        let kind = match self.kind {
            RouteKind::Unicast => 1,
            RouteKind::Blackhole => 6,
            RouteKind::Unreachable => 7,
        };
        let is_link = self.gateway.is_none() && self.kind == RouteKind::Unicast && self.destination.is_ipv4();
        let scope = if is_link { SCOPE_LINK } else { 0 };
        let family = family_of(self.destination.address);
        let mut header = vec![family, self.destination.prefix, 0, 0, MAIN_TABLE, self.protocol, scope, kind];
        header.extend(if self.onlink { ONLINK } else { 0u32 }.to_ne_bytes());
        let mut body = AttributeBuffer::with_header(&header);
        body.put(1, &octets(self.destination.first()));
        if self.link != 0 {
            body.put_u32(4, self.link);
        }
        if let Some(gateway) = self.gateway {
            body.put(5, &octets(gateway));
        }
        if let Some(metric) = self.metric {
            body.put_u32(6, metric);
        }
        if let Some(source) = self.source {
            body.put(7, &octets(source));
        }
        if let Some(mtu) = self.mtu {
            body.nest(RTA_METRICS, |metrics| {
                metrics.put_u32(RTAX_MTU, mtu);
            });
        }
        body
    }
}

/// Adds a route. One with the same destination and metric is an error.
pub fn add_route(route: &Route) -> io::Result<()> {
    netlink::send_command(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route.encode().as_bytes())
}

/// Adds a route in place of one with the same destination and metric.
pub fn replace_route(route: &Route) -> io::Result<()> {
    netlink::send_command(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route.encode().as_bytes())
}

/// Deletes a route; returns whether it existed.
pub fn delete_route(route: &Route) -> io::Result<bool> {
    match netlink::send_command(RTM_DELROUTE, 0, route.encode().as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Lists the routes of the main table, of both families.
pub fn list_routes() -> io::Result<Vec<Route>> {
    let messages = netlink::dump_objects(RTM_GETROUTE, &[0; 12])?;
    let parsed = messages.iter().map(|message| parse_route(message)).collect::<io::Result<Vec<_>>>()?;
    Ok(parsed.into_iter().flatten().collect())
}

fn parse_route(message: &[u8]) -> io::Result<Option<Route>> {
    let [family, prefix, _, _, table, protocol, _, kind, ..] = *message else {
        return Err(netlink::malformed_error());
    };
    let kind = match kind {
        1 => RouteKind::Unicast,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        _ => return Ok(None),
    };
    let any: IpAddr = if family == 2 { [0u8; 4].into() } else { [0u8; 16].into() };
    if table != MAIN_TABLE || !matches!(family, 2 | 10) {
        return Ok(None);
    }
    let onlink = read_u32(message, 8)? & ONLINK != 0;
    let mut route = Route { kind, onlink, protocol, ..Route::new(IpCidr { address: any, prefix }, 0) };
    for (attribute, value) in parse_attributes(message, 12)? {
        match attribute {
            1 => route.destination.address = parse_ip(value).unwrap_or(any),
            4 => route.link = read_u32(value, 0)?,
            5 => route.gateway = parse_ip(value),
            6 => route.metric = Some(read_u32(value, 0)?),
            7 => route.source = parse_ip(value),
            RTA_METRICS => {
                for (metric, value) in parse_attributes(value, 0)? {
                    if metric == RTAX_MTU {
                        route.mtu = Some(read_u32(value, 0)?);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(Some(route))
}
