//! Creation and change of links over rtnetlink.

use std::{
    io,
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::{MacAddress, NetworkLink, cidr::octets, ifinfo_header, list_links};
use crate::netlink::{self, AttributeBuffer, NLM_F_CREATE, NLM_F_EXCL};

const RTM_NEWLINK: u16 = 16;
const IFF_UP: u32 = 1;
const IFF_PROMISC: u32 = 0x100;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_BR_VLAN_FILTERING: u16 = 7;

/// A VXLAN link to create.
#[derive(Clone, Copy, Debug)]
pub struct VxlanSpec {
    /// The network identifier.
    pub id: u32,
    /// The local address of the outer packets.
    pub local: IpAddr,
    /// Index of the link that the outer packets leave through.
    pub underlay: u32,
    /// The UDP port.
    pub port: u16,
    /// The MTU.
    pub mtu: u32,
}

/// Finds a link by name.
pub fn find_link(name: &str) -> io::Result<Option<NetworkLink>> {
    Ok(list_links()?.into_iter().find(|link| link.name == name))
}

/// Finds a link by name; an absent one is an error.
pub fn link_by_name(name: &str) -> io::Result<NetworkLink> {
    find_link(name)?.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no link {name}")))
}

/// Creates a bridge.
pub fn create_bridge(name: &str, mtu: Option<u32>, vlan_filtering: bool) -> io::Result<()> {
    create_link(name, mtu, "bridge", |data| {
        if vlan_filtering {
            data.put(IFLA_BR_VLAN_FILTERING, &[1]);
        }
    })
}

/// The other end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethPeer<'a> {
    /// Its name.
    pub name: &'a str,
    /// The network namespace that it is created in.
    pub namespace: BorrowedFd<'a>,
    /// Its hardware address; `None` lets the kernel choose one.
    pub mac: Option<MacAddress>,
}

/// Creates a veth pair: `name` here, the peer in another namespace.
pub fn create_veth(name: &str, mtu: Option<u32>, peer: VethPeer<'_>) -> io::Result<()> {
    create_link(name, mtu, "veth", |data| {
        data.nest(VETH_INFO_PEER, |inner| {
            inner.put_raw(&ifinfo_header(0)).put_text(IFLA_IFNAME, peer.name);
            inner.put_u32(IFLA_NET_NS_FD, peer.namespace.as_raw_fd() as u32);
            if let Some(mtu) = mtu {
                inner.put_u32(IFLA_MTU, mtu);
            }
            if let Some(mac) = peer.mac {
                inner.put(IFLA_ADDRESS, &mac);
            }
        });
    })
}

/// Creates a VXLAN link that learns nothing: forwarding entries are given.
pub fn create_vxlan(name: &str, mac: MacAddress, spec: &VxlanSpec) -> io::Result<()> {
    let local_kind = if spec.local.is_ipv4() { 4 } else { 17 };
    let mut body = link_body(name, Some(spec.mtu));
    body.put(IFLA_ADDRESS, &mac).nest(IFLA_LINKINFO, |info| {
        info.put_text(IFLA_INFO_KIND, "vxlan").nest(IFLA_INFO_DATA, |data| {
            data.put_u32(1, spec.id).put_u32(3, spec.underlay).put(local_kind, &octets(spec.local));
            data.put(7, &[0]).put(15, &spec.port.to_be_bytes());
        });
    });
    netlink::send_command(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body.as_bytes())
}

fn create_link(name: &str, mtu: Option<u32>, kind: &str, fill: impl FnOnce(&mut AttributeBuffer)) -> io::Result<()> {
    let mut body = link_body(name, mtu);
    body.nest(IFLA_LINKINFO, |info| {
        info.put_text(IFLA_INFO_KIND, kind).nest(IFLA_INFO_DATA, fill);
    });
    netlink::send_command(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, body.as_bytes())
}

fn link_body(name: &str, mtu: Option<u32>) -> AttributeBuffer {
    let mut body = AttributeBuffer::with_header(&ifinfo_header(0));
    body.put_text(IFLA_IFNAME, name);
    if let Some(mtu) = mtu {
        body.put_u32(IFLA_MTU, mtu);
    }
    body
}

/// Sets a link up or down.
pub fn set_link_up(link: u32, up: bool) -> io::Result<()> {
    set_flags(link, if up { IFF_UP } else { 0 }, IFF_UP)
}

/// Sets the promiscuous mode.
pub fn set_promiscuous(link: u32, on: bool) -> io::Result<()> {
    set_flags(link, if on { IFF_PROMISC } else { 0 }, IFF_PROMISC)
}

fn set_flags(link: u32, flags: u32, change: u32) -> io::Result<()> {
    let mut header = ifinfo_header(link);
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    netlink::send_command(RTM_NEWLINK, 0, &header)
}

/// Attaches a link to a bridge; 0 detaches it.
pub fn set_master(link: u32, bridge: u32) -> io::Result<()> {
    change_link(link, |body| {
        body.put_u32(IFLA_MASTER, bridge);
    })
}

/// Sets the MTU.
pub fn set_mtu(link: u32, mtu: u32) -> io::Result<()> {
    change_link(link, |body| {
        body.put_u32(IFLA_MTU, mtu);
    })
}

/// Sets the hardware address.
pub fn set_mac(link: u32, mac: MacAddress) -> io::Result<()> {
    change_link(link, |body| {
        body.put(IFLA_ADDRESS, &mac);
    })
}

/// Sets the transmit queue length.
pub fn set_tx_queue_length(link: u32, length: u32) -> io::Result<()> {
    change_link(link, |body| {
        body.put_u32(13, length);
    })
}

/// Makes a link receive all multicast packets, or not.
pub fn set_all_multicast(link: u32, on: bool) -> io::Result<()> {
    const IFF_ALLMULTI: u32 = 0x200;
    set_flags(link, if on { IFF_ALLMULTI } else { 0 }, IFF_ALLMULTI)
}

/// Renames a link, which must be down.
pub fn rename_link(link: u32, name: &str) -> io::Result<()> {
    change_link(link, |body| {
        body.put_text(IFLA_IFNAME, name);
    })
}

/// Sets whether a port of a bridge sends packets back where they came from, and whether it only talks to the bridge.
pub fn set_bridge_port(link: u32, hairpin: bool, isolated: bool) -> io::Result<()> {
    change_link(link, |body| {
        body.nest(IFLA_LINKINFO, |info| {
            info.put_text(IFLA_INFO_SLAVE_KIND, "bridge").nest(IFLA_INFO_SLAVE_DATA, |data| {
                data.put(IFLA_BRPORT_MODE, &[hairpin.into()]);
                if isolated {
                    data.put(IFLA_BRPORT_ISOLATED, &[1]);
                }
            });
        });
    })
}

fn change_link(link: u32, fill: impl FnOnce(&mut AttributeBuffer)) -> io::Result<()> {
    let mut body = AttributeBuffer::with_header(&ifinfo_header(link));
    fill(&mut body);
    netlink::send_command(RTM_NEWLINK, 0, body.as_bytes())
}
