//! Connection tracking entries over netlink: listing and deletion.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::netlink::{AttributeBuffer, Message, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkSocket, parse_attributes};

const SUBSYSTEM: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const HEADER: usize = 4;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionTuple {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The transport protocol's number.
    pub protocol: u8,
    /// The source port; 0 if the protocol has none.
    pub source_port: u16,
    /// The destination port; 0 if the protocol has none.
    pub destination_port: u16,
}

/// A tracked connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// As the first packet was, before translation.
    pub original: ConnectionTuple,
    /// As answers are.
    pub reply: ConnectionTuple,
}

/// Lists the connections of a transport protocol.
pub fn list_connections(protocol: u8) -> io::Result<Vec<Connection>> {
    let request = SUBSYSTEM << 8 | IPCTNL_MSG_CT_GET;
    let messages = NetlinkSocket::netfilter()?.exchange(request, NLM_F_REQUEST | NLM_F_DUMP, &[0; HEADER])?;
    let parsed = messages.iter().map(parse_connection).collect::<io::Result<Vec<_>>>()?;
    Ok(parsed.into_iter().flatten().filter(|connection| connection.original.protocol == protocol).collect())
}

/// Deletes a connection; returns whether it existed.
pub fn delete_connection(connection: &Connection) -> io::Result<bool> {
    let body = encode_tuple(&connection.original);
    let request = SUBSYSTEM << 8 | IPCTNL_MSG_CT_DELETE;
    match NetlinkSocket::netfilter()?.exchange(request, NLM_F_REQUEST | NLM_F_ACK, body.as_bytes()) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn encode_tuple(tuple: &ConnectionTuple) -> AttributeBuffer {
    let family = if tuple.source.is_ipv4() { 2 } else { 10 };
    let mut body = AttributeBuffer::with_header(&[family, 0, 0, 0]);
    body.nest(CTA_TUPLE_ORIG, |out| {
        out.nest(1, |addresses| match (tuple.source, tuple.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                addresses.put(1, &source.octets()).put(2, &destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                addresses.put(3, &source.octets()).put(4, &destination.octets());
            }
            // The kernel refuses a tuple without addresses.
            _ => {}
        });
        out.nest(2, |ports| {
            ports.put(1, &[tuple.protocol]);
            ports.put(2, &tuple.source_port.to_be_bytes()).put(3, &tuple.destination_port.to_be_bytes());
        });
    });
    body
}

fn parse_connection(message: &Message) -> io::Result<Option<Connection>> {
    let (mut original, mut reply) = (None, None);
    for (kind, value) in parse_attributes(message, HEADER)? {
        match kind {
            CTA_TUPLE_ORIG => original = parse_tuple(value)?,
            CTA_TUPLE_REPLY => reply = parse_tuple(value)?,
            _ => {}
        }
    }
    Ok(original.zip(reply).map(|(original, reply)| Connection { original, reply }))
}

fn parse_tuple(value: &[u8]) -> io::Result<Option<ConnectionTuple>> {
    let (mut source, mut destination) = (None, None);
    let (mut protocol, mut source_port, mut destination_port) = (0, 0, 0);
    for (kind, value) in parse_attributes(value, 0)? {
        for (inner, value) in parse_attributes(value, 0)? {
            match (kind, inner) {
                (1, 1 | 3) => source = parse_address(value),
                (1, 2 | 4) => destination = parse_address(value),
                (2, 1) => protocol = value.first().copied().unwrap_or_default(),
                (2, 2) => source_port = parse_port(value),
                (2, 3) => destination_port = parse_port(value),
                _ => {}
            }
        }
    }
    let tuple =
        |(source, destination)| ConnectionTuple { source, destination, protocol, source_port, destination_port };
    Ok(source.zip(destination).map(tuple))
}

fn parse_address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into()),
        _ => <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()),
    }
}

fn parse_port(value: &[u8]) -> u16 {
    <[u8; 2]>::try_from(value).map(u16::from_be_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tuple_is_read_back() {
        let tuple = ConnectionTuple {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.96.0.10".parse().unwrap(),
            protocol: 17,
            source_port: 4000,
            destination_port: 53,
        };
        let body = encode_tuple(&tuple);
        let attributes = parse_attributes(body.as_bytes(), HEADER).unwrap();
        assert_eq!(parse_tuple(attributes[0].1).unwrap(), Some(tuple));
    }
}
