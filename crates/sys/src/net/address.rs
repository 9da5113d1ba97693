//! Addresses of links over rtnetlink.

use std::io;

use super::{IpCidr, cidr::octets, family_of};
use crate::netlink::{self, AttributeBuffer, NLM_F_CREATE, NLM_F_EXCL};

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
/// IPv6 addresses are used at once, without asking the network whether another host has them.
const IFA_F_NODAD: u8 = 2;

/// Adds an address to a link; one that is there is an error.
pub fn add_address(link: u32, address: IpCidr) -> io::Result<()> {
    netlink::send_command(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, encode_address(link, address).as_bytes())
}

/// Adds an address to a link unless it is there.
pub fn ensure_address(link: u32, address: IpCidr) -> io::Result<()> {
    match add_address(link, address) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}

/// Removes an address from a link; returns whether it was there.
pub fn delete_address(link: u32, address: IpCidr) -> io::Result<bool> {
    match netlink::send_command(RTM_DELADDR, 0, encode_address(link, address).as_bytes()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode_address(link: u32, address: IpCidr) -> AttributeBuffer {
    let flags = if address.is_ipv4() { 0 } else { IFA_F_NODAD };
    let mut header = vec![family_of(address.address), address.prefix, flags, 0];
    header.extend(link.to_ne_bytes());
    let mut body = AttributeBuffer::with_header(&header);
    let bytes = octets(address.address);
    body.put(1, &bytes).put(2, &bytes);
    if address.is_ipv4() && address.prefix < 31 {
        body.put(4, &octets(address.last()));
    }
    body
}
