//! The endpoints of a headless service as DNS shows them: host names, addresses and ports.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use crate::views::EndpointSliceView;

/// Name, protocol and number of a port.
type EndpointPort = (String, &'static str, u16);

/// Ready endpoints by host name and address. An endpoint without a host name is named by its address, `10-42-0-7`.
#[derive(Debug, Default)]
pub(super) struct EndpointRecords {
    hosts: BTreeMap<(String, IpAddr), Vec<EndpointPort>>,
}

impl EndpointRecords {
    pub fn collect(slices: &[Arc<EndpointSliceView>]) -> Self {
        let mut hosts: BTreeMap<(String, IpAddr), Vec<EndpointPort>> = BTreeMap::new();
        for slice in slices {
            let ports: Vec<EndpointPort> = slice
                .ports
                .iter()
                .flatten()
                .filter_map(|port| {
                    let name = port.name.as_deref().unwrap_or_default().to_lowercase();
                    Some((name, protocol_name(port.protocol.as_deref()), port.port?))
                })
                .collect();
            for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| endpoint.is_ready()) {
                for ip in endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok()) {
                    let host = endpoint.hostname.as_deref().map_or_else(|| dashed_address(ip), str::to_lowercase);
                    hosts.entry((host, ip)).or_default().extend(ports.iter().cloned());
                }
            }
        }
        Self { hosts }
    }

    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// All addresses, in a random order so that clients that take the first one spread.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self.hosts.keys().map(|(_, ip)| *ip).collect();
        addresses.sort_unstable();
        addresses.dedup();
        fastrand::shuffle(&mut addresses);
        addresses
    }

    pub fn addresses_of_host(&self, host: &str) -> Vec<IpAddr> {
        self.hosts.keys().filter(|(name, _)| name == host).map(|(_, ip)| *ip).collect()
    }

    /// Host name, address and ports of every endpoint.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, IpAddr, &[EndpointPort])> {
        self.hosts.iter().map(|((host, ip), ports)| (host.as_str(), *ip, ports.as_slice()))
    }
}

/// The protocol as DNS writes it.
pub(super) fn protocol_name(protocol: Option<&str>) -> &'static str {
    match protocol {
        Some("UDP") => "udp",
        Some("SCTP") => "sctp",
        _ => "tcp",
    }
}

fn dashed_address(ip: IpAddr) -> String {
    ip.to_string().replace(['.', ':'], "-")
}
