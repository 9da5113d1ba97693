//! Permanent neighbours and forwarding entries over rtnetlink.

use std::{io, net::IpAddr};

use super::{cidr::octets, family_of, parse_ip};
use crate::netlink::{self, AttributeBuffer, NLM_F_CREATE, NLM_F_REPLACE, parse_attributes, read_u16, read_u32};

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const AF_BRIDGE: u8 = 7;
const NUD_PERMANENT: u16 = 0x80;
const NTF_SELF: u8 = 2;

/// The hardware address of a link.
pub type MacAddress = [u8; 6];

/// A neighbour: the hardware address of an address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Neighbour {
    /// Index of the link.
    pub link: u32,
    /// The address.
    pub address: IpAddr,
    /// Its hardware address.
    pub mac: MacAddress,
}

/// A forwarding entry of a VXLAN link: the host behind which a hardware address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ForwardingEntry {
    /// Index of the VXLAN link.
    pub link: u32,
    /// The hardware address.
    pub mac: MacAddress,
    /// The host.
    pub host: IpAddr,
}

/// Adds or replaces a permanent neighbour.
pub fn replace_neighbour(neighbour: &Neighbour) -> io::Result<()> {
    let body = encode_neighbour(family_of(neighbour.address), neighbour.link, 0, neighbour.address, neighbour.mac);
    netlink::send_command(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body.as_bytes())
}

/// Deletes a neighbour; returns whether it existed.
pub fn delete_neighbour(neighbour: &Neighbour) -> io::Result<bool> {
    let body = encode_neighbour(family_of(neighbour.address), neighbour.link, 0, neighbour.address, neighbour.mac);
    ignore_absent(netlink::send_command(RTM_DELNEIGH, 0, body.as_bytes()))
}

/// Lists the permanent neighbours of a link.
pub fn list_neighbours(link: u32) -> io::Result<Vec<Neighbour>> {
    let entries = list_entries(0, link)?;
    Ok(entries.into_iter().map(|(mac, address)| Neighbour { link, address, mac }).collect())
}

/// Adds or replaces a forwarding entry.
pub fn replace_forwarding(entry: &ForwardingEntry) -> io::Result<()> {
    let body = encode_neighbour(AF_BRIDGE, entry.link, NTF_SELF, entry.host, entry.mac);
    netlink::send_command(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, body.as_bytes())
}

/// Deletes a forwarding entry; returns whether it existed.
pub fn delete_forwarding(entry: &ForwardingEntry) -> io::Result<bool> {
    let body = encode_neighbour(AF_BRIDGE, entry.link, NTF_SELF, entry.host, entry.mac);
    ignore_absent(netlink::send_command(RTM_DELNEIGH, 0, body.as_bytes()))
}

/// Lists the forwarding entries of a VXLAN link.
pub fn list_forwarding(link: u32) -> io::Result<Vec<ForwardingEntry>> {
    let entries = list_entries(AF_BRIDGE, link)?;
    Ok(entries.into_iter().map(|(mac, host)| ForwardingEntry { link, mac, host }).collect())
}

fn ignore_absent(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode_neighbour(family: u8, link: u32, flags: u8, address: IpAddr, mac: MacAddress) -> AttributeBuffer {
    let mut header = vec![family, 0, 0, 0];
    header.extend(link.to_ne_bytes());
    header.extend(NUD_PERMANENT.to_ne_bytes());
    header.extend([flags, 0]);
    let mut body = AttributeBuffer::with_header(&header);
    body.put(1, &octets(address)).put(2, &mac);
    body
}

fn list_entries(family: u8, link: u32) -> io::Result<Vec<(MacAddress, IpAddr)>> {
    let mut header = [0; 12];
    header[0] = family;
    let mut found = Vec::new();
    for message in netlink::dump_objects(RTM_GETNEIGH, &header)? {
        if read_u32(&message, 4)? != link || read_u16(&message, 8)? & NUD_PERMANENT == 0 {
            continue;
        }
        let (mut address, mut mac) = (None, None);
        for (kind, value) in parse_attributes(&message, 12)? {
            match kind {
                1 => address = parse_ip(value),
                2 => mac = <MacAddress>::try_from(value).ok(),
                _ => {}
            }
        }
        found.extend(mac.zip(address));
    }
    Ok(found)
}
