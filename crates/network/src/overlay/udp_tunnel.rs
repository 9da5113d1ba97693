//! The back end `udp`: packets for other nodes' pods are read from a TUN link and sent to the node in UDP datagrams.
//!
//! A datagram is accepted only from the address of a node, and only with a packet from one of that node's pods.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, PoisonError, RwLock},
};

use sys::net::{IpCidr, TunLink};
use tokio::net::UdpSocket;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::plan::RemoteNode;

/// The UDP port of the tunnel.
pub(super) const UDP_PORT: u16 = 8285;
/// The largest packet.
const PACKET_SIZE: usize = 65_535;

/// The peers of the tunnel, replaced as a whole.
#[derive(Debug, Default)]
struct TunnelPeers {
    ranges: Vec<(IpCidr, IpAddr)>,
}

impl TunnelPeers {
    fn from_nodes(nodes: &[RemoteNode]) -> Self {
        let ranges = nodes.iter().flat_map(|node| node.pod_cidrs.iter().map(|cidr| (*cidr, node.address)));
        Self { ranges: ranges.collect() }
    }

    fn node_of(&self, pod: IpAddr) -> Option<IpAddr> {
        self.ranges.iter().find(|(range, _)| range.contains(pod)).map(|(_, node)| *node)
    }
}

/// A running tunnel; it ends when it is dropped.
pub(super) struct UdpTunnel {
    peers: Arc<RwLock<TunnelPeers>>,
    _running: DropGuard,
}

impl UdpTunnel {
    /// Creates the TUN link and carries packets between it and a socket on the node's address.
    pub async fn start(link_name: &str, node_ip: IpAddr) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind((node_ip, UDP_PORT)).await?);
        let link = Arc::new(TunLink::create(link_name)?);
        let peers: Arc<RwLock<TunnelPeers>> = Arc::default();
        let running = CancellationToken::new();
        let (ended, out) = (running.clone(), send_packets(link.clone(), socket.clone(), peers.clone()));
        tokio::spawn(async move { ended.run_until_cancelled(out).await });
        let (ended, receive) = (running.clone(), receive_packets(link, socket, peers.clone()));
        tokio::spawn(async move { ended.run_until_cancelled(receive).await });
        Ok(Self { peers, _running: running.drop_guard() })
    }

    /// Replaces the peers.
    pub fn set_nodes(&self, nodes: &[RemoteNode]) {
        *self.peers.write().unwrap_or_else(PoisonError::into_inner) = TunnelPeers::from_nodes(nodes);
    }
}

async fn send_packets(link: Arc<TunLink>, socket: Arc<UdpSocket>, peers: Arc<RwLock<TunnelPeers>>) {
    let mut buffer = vec![0; PACKET_SIZE];
    loop {
        let length = match link.read_packet(&mut buffer).await {
            Ok(length) => length,
            Err(error) => return tracing::error!(%error, "overlay: the tunnel cannot be read"),
        };
        let destination = packet_addresses(&buffer[..length]).map(|(_, destination)| destination);
        let node = destination.and_then(|pod| peers.read().unwrap_or_else(PoisonError::into_inner).node_of(pod));
        if let Some(node) = node {
            // Like any link, the tunnel may lose a packet: the sender's protocol repeats it.
            let _ = socket.send_to(&buffer[..length], SocketAddr::new(node, UDP_PORT)).await;
        }
    }
}

async fn receive_packets(link: Arc<TunLink>, socket: Arc<UdpSocket>, peers: Arc<RwLock<TunnelPeers>>) {
    let mut buffer = vec![0; PACKET_SIZE];
    loop {
        let Ok((length, sender)) = socket.recv_from(&mut buffer).await else { continue };
        let packet = &buffer[..length];
        let is_from_peer = packet_addresses(packet).is_some_and(|(source, _)| {
            peers.read().unwrap_or_else(PoisonError::into_inner).node_of(source) == Some(sender.ip())
        });
        if is_from_peer {
            // A full queue drops the packet.
            let _ = link.write_packet(packet);
        }
    }
}

/// The source and destination of an IP packet.
fn packet_addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?).into());
    let v6 = |at: usize| Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?).into());
    match packet.first()? >> 4 {
        4 => Some((v4(12)?, v4(16)?)),
        6 => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_whole_packets_only() {
        let mut packet = vec![0x45; 20];
        packet[12..20].copy_from_slice(&[10, 42, 0, 3, 10, 42, 1, 5]);
        let (source, destination) = packet_addresses(&packet).unwrap();
        assert_eq!((source.to_string(), destination.to_string()), ("10.42.0.3".into(), "10.42.1.5".into()));
        for broken in [&packet[..19], &[], &[0x65][..]] {
            assert_eq!(packet_addresses(broken), None);
        }
    }

    #[test]
    fn peer_is_found_by_the_pod_range() {
        let nodes = [RemoteNode {
            name: "b".into(),
            address: "192.0.2.2".parse().unwrap(),
            pod_cidrs: vec!["10.42.1.0/24".parse().unwrap()],
        }];
        let peers = TunnelPeers::from_nodes(&nodes);
        assert_eq!(peers.node_of("10.42.1.9".parse().unwrap()), Some(nodes[0].address));
        assert_eq!(peers.node_of("10.42.2.9".parse().unwrap()), None);
    }
}
