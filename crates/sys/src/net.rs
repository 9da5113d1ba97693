//! Network links, addresses and routes over rtnetlink, IP forwarding.
//!
//! All functions act on the network namespace of the calling thread.

mod address;
mod cidr;
mod link;
mod neighbour;
mod route;
mod tun;

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use crate::netlink::{self, parse_attributes, read_u32};

pub use address::{add_address, delete_address, ensure_address};
pub use cidr::{IpCidr, IpCidrParseError, octets};
pub use link::{
    VethPeer, VxlanSpec, create_bridge, create_veth, create_vxlan, find_link, link_by_name, rename_link,
    set_all_multicast, set_bridge_port, set_link_up, set_mac, set_master, set_mtu, set_promiscuous,
    set_tx_queue_length,
};
pub use neighbour::{
    ForwardingEntry, MacAddress, Neighbour, delete_forwarding, delete_neighbour, list_forwarding, list_neighbours,
    replace_forwarding, replace_neighbour,
};
pub use route::{Route, RouteKind, add_route, delete_route, list_routes, replace_route};
pub use tun::TunLink;

const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const IFF_ALLMULTI: u32 = 0x200;
const IFF_UP: u32 = 1;
const IP_FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkLink {
    /// Interface index.
    pub index: u32,
    /// Interface name, for example `eth0`.
    pub name: String,
    /// Whether it is administratively up.
    pub up: bool,
    /// Maximum transmission unit.
    pub mtu: u32,
    /// Index of the bridge that it is a port of.
    pub master: Option<u32>,
    /// The hardware address of an Ethernet link.
    pub mac: Option<MacAddress>,
    /// Index of the link's peer or parent.
    pub peer: Option<u32>,
    /// Whether it receives packets for all hardware addresses.
    pub promiscuous: bool,
    /// Whether it receives all multicast packets.
    pub all_multicast: bool,
    /// Packets that wait for transmission at most.
    pub tx_queue_length: u32,
}

/// An address of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkAddress {
    /// Interface index.
    pub link: u32,
    /// The address.
    pub ip: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// Whether the scope is global.
    pub global: bool,
}

/// An IPv4 default route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRoute {
    /// Index of the outgoing interface.
    pub link: u32,
    /// Preferred source address.
    pub source: Option<Ipv4Addr>,
    /// Metric; the lowest wins.
    pub metric: u32,
}

/// An IPv4 address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Cidr {
    /// The first address.
    pub base: Ipv4Addr,
    /// Prefix length.
    pub prefix: u8,
}

/// A text is not an IPv4 CIDR.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrParseError {
    /// The text is not of the form `address/prefix`.
    #[error("{0:?} is not an IPv4 range such as 10.42.0.0/24")]
    Malformed(String),
    /// The address has bits set beyond the prefix.
    #[error("{text} has bits set beyond its prefix; did you mean {suggestion}?")]
    HostBits {
        /// The text.
        text: String,
        /// The range with these bits cleared.
        suggestion: Ipv4Cidr,
    },
}

impl Ipv4Cidr {
    /// Whether `ip` is in the range.
    pub fn contains(&self, ip: Ipv4Addr) -> bool {
        u32::from(ip) & self.mask() == u32::from(self.base)
    }

    /// Whether the two ranges have an address in common.
    pub fn overlaps(&self, other: &Ipv4Cidr) -> bool {
        self.contains(other.base) || other.contains(self.base)
    }

    fn mask(&self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0)
    }
}

impl From<Ipv4Cidr> for IpCidr {
    fn from(cidr: Ipv4Cidr) -> Self {
        Self { address: cidr.base.into(), prefix: cidr.prefix }
    }
}

impl std::fmt::Display for Ipv4Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl std::str::FromStr for Ipv4Cidr {
    type Err = CidrParseError;

    fn from_str(text: &str) -> Result<Self, CidrParseError> {
        let parsed = text.split_once('/').and_then(|(ip, prefix)| {
            let cidr = Ipv4Cidr { base: ip.parse().ok()?, prefix: prefix.parse().ok().filter(|prefix| *prefix <= 32)? };
            Some(cidr)
        });
        let cidr = parsed.ok_or_else(|| CidrParseError::Malformed(text.into()))?;
        let base = Ipv4Addr::from(u32::from(cidr.base) & cidr.mask());
        if base != cidr.base {
            let suggestion = Self { base, ..cidr };
            return Err(CidrParseError::HostBits { text: text.into(), suggestion });
        }
        Ok(cidr)
    }
}

/// Lists the links of this network namespace.
pub fn list_links() -> io::Result<Vec<NetworkLink>> {
    netlink::dump_objects(RTM_GETLINK, &ifinfo_header(0))?.iter().map(|message| parse_link(message)).collect()
}

fn parse_link(message: &[u8]) -> io::Result<NetworkLink> {
    let mut link = NetworkLink {
        index: read_u32(message, 4)?,
        name: String::new(),
        up: read_u32(message, 8)? & IFF_UP != 0,
        mtu: 0,
        master: None,
        mac: None,
        peer: None,
        promiscuous: false,
        all_multicast: read_u32(message, 8)? & IFF_ALLMULTI != 0,
        tx_queue_length: 0,
    };
    for (kind, value) in parse_attributes(message, 16)? {
        match kind {
            1 => link.mac = MacAddress::try_from(value).ok(),
            3 => link.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            4 => link.mtu = read_u32(value, 0)?,
            5 => link.peer = Some(read_u32(value, 0)?),
            10 => link.master = Some(read_u32(value, 0)?),
            13 => link.tx_queue_length = read_u32(value, 0)?,
            30 => link.promiscuous = read_u32(value, 0)? != 0,
            _ => {}
        }
    }
    Ok(link)
}

/// Lists the addresses of this network namespace.
pub fn list_addresses() -> io::Result<Vec<LinkAddress>> {
    let dump = netlink::dump_objects(RTM_GETADDR, &[AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0])?;
    dump.iter().filter_map(|message| parse_address(message).transpose()).collect()
}

fn parse_address(message: &[u8]) -> io::Result<Option<LinkAddress>> {
    let header = message.get(..8).ok_or_else(netlink::malformed_error)?;
    let (prefix, scope, link) = (header[1], header[3], read_u32(message, 4)?);
    let attributes = parse_attributes(message, 8)?;
    // IFA_LOCAL is the local address; on point-to-point links IFA_ADDRESS is the peer's.
    let own = attributes.iter().find(|(kind, _)| *kind == 2).or(attributes.iter().find(|(kind, _)| *kind == 1));
    Ok(own.and_then(|(_, value)| parse_ip(value)).map(|ip| LinkAddress { link, ip, prefix, global: scope == 0 }))
}

/// Lists the IPv4 default routes, the preferred one first.
pub fn list_default_routes() -> io::Result<Vec<DefaultRoute>> {
    let mut header = [0; 12];
    header[0] = AF_INET;
    let mut routes = Vec::new();
    for message in netlink::dump_objects(RTM_GETROUTE, &header)? {
        routes.extend(parse_default_route(&message)?);
    }
    routes.sort_by_key(|route| route.metric);
    Ok(routes)
}

fn parse_default_route(message: &[u8]) -> io::Result<Option<DefaultRoute>> {
    const MAIN_TABLE: u8 = 254;
    const UNICAST: u8 = 1;
    let header = message.get(..12).ok_or_else(netlink::malformed_error)?;
    if (header[0], header[1], header[4], header[7]) != (AF_INET, 0, MAIN_TABLE, UNICAST) {
        return Ok(None);
    }
    let mut route = DefaultRoute { link: 0, source: None, metric: 0 };
    for (kind, value) in parse_attributes(message, 12)? {
        match (kind, parse_ip(value)) {
            (4, _) => route.link = read_u32(value, 0)?,
            (6, _) => route.metric = read_u32(value, 0)?,
            (7, Some(IpAddr::V4(source))) => route.source = Some(source),
            _ => {}
        }
    }
    Ok(Some(route))
}

/// Returns the address under which other hosts most likely reach this one: that of the default route, else the first
/// global address of a link that is up and not in `ours`, else loopback.
pub fn host_address(ours: &[&str]) -> io::Result<Ipv4Addr> {
    let links = list_links()?;
    let addresses = list_addresses()?;
    let of_link = |index: u32| {
        addresses.iter().filter(move |address| address.link == index && address.global).find_map(
            |address| match address.ip {
                IpAddr::V4(ip) => Some(ip),
                IpAddr::V6(_) => None,
            },
        )
    };
    let by_route = list_default_routes()?.into_iter().find_map(|route| route.source.or_else(|| of_link(route.link)));
    let by_link = || {
        let foreign = links.iter().filter(|link| link.up && !ours.contains(&link.name.as_str()));
        foreign.filter_map(|link| of_link(link.index)).find(|ip| !ip.is_loopback())
    };
    Ok(by_route.or_else(by_link).unwrap_or(Ipv4Addr::LOCALHOST))
}

/// Deletes a link by name; returns whether it existed.
pub fn delete_link(name: &str) -> io::Result<bool> {
    match list_links()?.into_iter().find(|link| link.name == name) {
        Some(link) => netlink::send_command(RTM_DELLINK, 0, &ifinfo_header(link.index)).map(|()| true),
        None => Ok(false),
    }
}

/// Whether the kernel has IPv6.
pub fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

/// Whether IPv4 forwarding is enabled.
pub fn is_ip_forward_enabled() -> io::Result<bool> {
    Ok(fs::read_to_string(IP_FORWARD)?.trim() != "0")
}

/// Enables or disables IPv4 forwarding.
pub fn set_ip_forward(on: bool) -> io::Result<()> {
    fs::write(IP_FORWARD, if on { "1" } else { "0" })
}

/// The number of an address's family.
fn family_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { AF_INET } else { 10 }
}

fn ifinfo_header(index: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

fn parse_ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into()),
        16 => <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_link_is_listed_with_its_address() {
        let links = list_links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(lo.mtu >= 1280);
        let addresses = list_addresses().unwrap();
        let own: Vec<_> = addresses.iter().filter(|address| address.link == lo.index).collect();
        assert!(own.iter().all(|address| !address.global || !address.ip.is_loopback()));
    }

    #[test]
    fn deleting_an_absent_link_returns_false() {
        assert!(!delete_link("no-such-link").unwrap());
    }

    #[test]
    fn cidr_is_parsed_and_compared() {
        let pods: Ipv4Cidr = "10.42.0.0/24".parse().unwrap();
        assert!(pods.contains(Ipv4Addr::new(10, 42, 0, 255)));
        assert!(!pods.contains(Ipv4Addr::new(10, 42, 1, 0)));
        assert!(pods.overlaps(&"10.0.0.0/8".parse().unwrap()));
        assert!(!pods.overlaps(&"10.96.0.0/16".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Ipv4Cidr>().unwrap().contains(Ipv4Addr::BROADCAST));
        for wrong in ["10.42.0.0", "10.42.0.0/33", "x/8", "10.42.0.1/24"] {
            assert!(wrong.parse::<Ipv4Cidr>().is_err(), "{wrong}");
        }
    }
}
