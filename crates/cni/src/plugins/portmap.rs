//! `portmap`: maps ports of the host to ports of a container.
//!
//! One table per IP family for all containers: maps from (protocol, host port), or (host address, protocol, host port), to
//! the container's address and port. Connections of the host itself, through loopback too, and of the container to its
//! own host port work.

use std::{io, net::IpAddr};

use serde::Deserialize;
use sys::{
    net::{IpCidr, octets},
    nftables::{
        self, BaseChain, ChainType, Compare, DataType, Expression, Family, FibAddress, Hook, MetaKey, NftError,
        PayloadBase, Register, SetElement, SetKind, SetSpec, TableName, Transaction, Verdict,
    },
};

use super::{
    CniPlugin,
    nft_elements::{delete_known_elements, list_if_present},
};
use crate::{plugin_error::PluginError, request::CniRequest, result::CniResult};

const TABLE: &str = "cni-hostport";
const PORTS: &str = "hostports";
const ADDRESS_PORTS: &str = "hostip-hostports";
const CONTAINERS: &str = "containers";
const RTN_LOCAL: u32 = 2;
/// Before service proxies.
const DNAT: i32 = -101;
const SNAT: i32 = 99;

pub struct PortmapPlugin;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PortmapConfig {
    runtime_config: RuntimeConfig,
    snat: Option<bool>,
    masq_all: bool,
    conditions_v4: Option<Vec<String>>,
    conditions_v6: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RuntimeConfig {
    port_mappings: Vec<PortMapping>,
}

/// A mapping as the runtime passes it. Go reads names of any case, and containerd writes them capitalized.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PortMapping {
    #[serde(alias = "HostPort")]
    host_port: i64,
    #[serde(alias = "ContainerPort")]
    container_port: i64,
    #[serde(alias = "Protocol")]
    protocol: String,
    #[serde(rename = "hostIP", alias = "HostIP")]
    host_ip: String,
}

/// A checked mapping.
struct HostPort {
    key: Vec<u8>,
    /// Of which map.
    map: &'static str,
    /// Only for this family, if the host's address names one.
    is_ipv4: Option<bool>,
    container_port: u16,
}

impl PortmapConfig {
    fn read(request: &CniRequest) -> Result<Self, PluginError> {
        let config: Self = request.decode()?;
        let refused = [
            ("snat: false", config.snat == Some(false)),
            ("masqAll", config.masq_all),
            ("conditionsV4", config.conditions_v4.is_some()),
            ("conditionsV6", config.conditions_v6.is_some()),
        ];
        match refused.iter().find(|(_, given)| *given) {
            Some((name, _)) => {
                Err(PluginError::new(PluginError::UNSUPPORTED_FIELD, format!("{name} is not supported")))
            }
            None => Ok(config),
        }
    }

    fn host_ports(&self) -> Result<Vec<HostPort>, PluginError> {
        self.runtime_config.port_mappings.iter().filter(|one| one.host_port != 0).map(HostPort::from_mapping).collect()
    }
}

impl HostPort {
    fn from_mapping(mapping: &PortMapping) -> Result<Self, PluginError> {
        let port = |name: &str, number: i64| {
            let valid = u16::try_from(number).ok().filter(|port| *port != 0);
            valid.ok_or_else(|| PluginError::invalid(format!("invalid {name} number: {number}")))
        };
        let protocol: u8 = match mapping.protocol.to_lowercase().as_str() {
            "tcp" | "" => 6,
            "udp" => 17,
            "sctp" => 132,
            other => return Err(PluginError::invalid(format!("unknown protocol {other}"))),
        };
        let host_ip = Some(mapping.host_ip.as_str()).filter(|text| !text.is_empty());
        let host_ip: Option<IpAddr> = host_ip
            .map(|text| text.parse().map_err(|_| PluginError::invalid(format!("invalid host IP {text:?}"))))
            .transpose()?;
        let specific = host_ip.filter(|ip| !ip.is_unspecified());
        let mut key = specific.map(octets).unwrap_or_default();
        key.extend([protocol, 0, 0, 0]);
        key.extend(port("host port", mapping.host_port)?.to_be_bytes());
        key.extend([0, 0]);
        Ok(Self {
            key,
            map: if specific.is_some() { ADDRESS_PORTS } else { PORTS },
            is_ipv4: host_ip.map(|ip| ip.is_ipv4()),
            container_port: port("container port", mapping.container_port)?,
        })
    }

    fn element(&self, ip: IpAddr) -> SetElement {
        let mut value = octets(ip);
        value.extend(self.container_port.to_be_bytes());
        value.extend([0, 0]);
        SetElement::value(self.key.clone(), value)
    }

    fn is_for(&self, ip: IpAddr) -> bool {
        self.is_ipv4.is_none_or(|is_ipv4| is_ipv4 == ip.is_ipv4())
    }
}

impl CniPlugin for PortmapPlugin {
    fn add(&self, request: &CniRequest) -> Result<CniResult, PluginError> {
        let config = PortmapConfig::read(request)?;
        let result = request.required_previous_result()?;
        let ports = config.host_ports()?;
        if !ports.is_empty() {
            for ip in container_addresses(&result) {
                add_ports(ip, &ports).map_err(|error| refused(&error))?;
            }
            allow_loopback(&result);
        }
        Ok(result)
    }

    fn delete(&self, request: &CniRequest) -> Result<(), PluginError> {
        let config = PortmapConfig::read(request)?;
        let addresses = request.previous_result()?.map(|result| container_addresses(&result)).unwrap_or_default();
        for family in [Family::Ip, Family::Ip6] {
            let own: Vec<IpAddr> =
                addresses.iter().copied().filter(|ip| ip.is_ipv4() == (family == Family::Ip)).collect();
            let deleted = delete_ports(&TableName::new(family, TABLE), &own, &config.host_ports()?);
            deleted.map_err(|error| refused(&error))?;
        }
        Ok(())
    }

    fn check(&self, request: &CniRequest) -> Result<(), PluginError> {
        let config = PortmapConfig::read(request)?;
        let ports = config.host_ports()?;
        for ip in container_addresses(&request.required_previous_result()?) {
            for port in ports.iter().filter(|port| port.is_for(ip)) {
                let known = list_if_present(&table_of(ip), port.map).map_err(|error| refused(&error))?;
                if !known.contains(&port.element(ip)) {
                    return Err(PluginError::mismatch(format!("host port of {ip}:{} is missing", port.container_port)));
                }
            }
        }
        Ok(())
    }
}

fn refused(error: &NftError) -> PluginError {
    match error.io_error().kind() {
        io::ErrorKind::AlreadyExists => {
            PluginError::mismatch(format!("host port is in use by another container: {error}"))
        }
        _ => PluginError::mismatch(error.to_string()),
    }
}

fn container_addresses(result: &CniResult) -> Vec<IpAddr> {
    result.ips.iter().map(|ip| ip.address.address).collect()
}

fn table_of(ip: IpAddr) -> TableName {
    TableName::new(if ip.is_ipv4() { Family::Ip } else { Family::Ip6 }, TABLE)
}

fn add_ports(ip: IpAddr, ports: &[HostPort]) -> Result<(), NftError> {
    let table = table_of(ip);
    let mut changes = Transaction::new();
    write_table(&table, &mut changes);
    for port in ports.iter().filter(|port| port.is_for(ip)) {
        changes.add_elements(&table, port.map, &[port.element(ip)]);
    }
    changes.add_elements(&table, CONTAINERS, &[SetElement::key([octets(ip), octets(ip)].concat())]);
    changes.commit()
}

/// Deletes the mappings that lead to the container; without its addresses, those of its configuration.
fn delete_ports(table: &TableName, addresses: &[IpAddr], ports: &[HostPort]) -> Result<(), NftError> {
    let own: Vec<Vec<u8>> = addresses.iter().map(|ip| octets(*ip)).collect();
    let mut changes = Transaction::new();
    for map in [PORTS, ADDRESS_PORTS] {
        let leads_here = |element: &SetElement| match &element.data {
            Some(nftables::ElementData::Value(value)) if !own.is_empty() => own.iter().any(|ip| value.starts_with(ip)),
            _ => own.is_empty() && ports.iter().any(|port| port.map == map && port.key == element.key),
        };
        delete_known_elements(table, map, leads_here, &mut changes)?;
    }
    let pairs: Vec<Vec<u8>> = own.iter().map(|ip| [&ip[..], ip].concat()).collect();
    delete_known_elements(table, CONTAINERS, |element| pairs.contains(&element.key), &mut changes)?;
    changes.commit()
}

/// Deletes the mappings to containers of a range, and the tables if no other mapping is left.
pub fn remove_host_ports(range: IpCidr) -> Result<(), NftError> {
    for table in nftables::list_tables()?.iter().filter(|table| table.name == TABLE) {
        let width = if table.family == Family::Ip { 4 } else { 16 };
        let leads_there = |bytes: &[u8]| {
            let address = bytes.get(..width).and_then(|bytes| match width {
                4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
                _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
            });
            address.is_some_and(|address| range.contains(address))
        };
        let mut changes = Transaction::new();
        let mut is_empty = true;
        for map in [PORTS, ADDRESS_PORTS, CONTAINERS] {
            let (stale, kept): (Vec<_>, Vec<_>) =
                list_if_present(table, map)?.into_iter().partition(|element| match &element.data {
                    Some(nftables::ElementData::Value(value)) => leads_there(value),
                    _ => leads_there(&element.key),
                });
            is_empty &= kept.is_empty();
            changes.delete_elements(table, map, &stale);
        }
        if is_empty {
            changes.delete_table(table);
        }
        changes.commit()?;
    }
    Ok(())
}

/// Writes tables, sets and rules; existing elements stay.
fn write_table(table: &TableName, changes: &mut Transaction) {
    let is_ipv4 = table.family == Family::Ip;
    let address = if is_ipv4 { DataType::Ipv4Address } else { DataType::Ipv6Address };
    let words: Register = if is_ipv4 { 1 } else { 4 };
    let endpoint = SetKind::Map(vec![address, DataType::Port]);
    changes.add_table(table);
    changes.add_set(table, &SetSpec::new(PORTS, &[DataType::Protocol, DataType::Port], endpoint.clone()));
    changes.add_set(table, &SetSpec::new(ADDRESS_PORTS, &[address, DataType::Protocol, DataType::Port], endpoint));
    changes.add_set(table, &SetSpec::new(CONTAINERS, &[address, address], SetKind::Set));
    let base = |kind, hook, priority| Some(BaseChain { kind, hook, priority });
    let chains = [
        ("hostports", None),
        ("prerouting", base(ChainType::Nat, Hook::Prerouting, DNAT)),
        ("output", base(ChainType::Nat, Hook::Output, DNAT)),
        ("masquerading", base(ChainType::Nat, Hook::Postrouting, SNAT)),
    ];
    for (name, place) in chains {
        changes.add_chain(table, name, place);
        changes.flush_chain(table, name);
    }
    let load = |at: (u32, u32), into| {
        let (offset, length) = if is_ipv4 { (at.0, 4) } else { (at.1, 16) };
        Expression::Payload { base: PayloadBase::Network, offset, length, into }
    };
    let (source, destination) = ((12, 8), (16, 24));
    let load_port = |into: Register| {
        [
            Expression::Meta { key: MetaKey::L4Proto, into },
            Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, into: into + 1 },
        ]
    };
    let translate = |map: &str, from: Register, into: Register| {
        [
            Expression::MapLookup { map: map.into(), from, into },
            Expression::Dnat { family: table.family_number(), address: into, port: Some(into + words) },
        ]
    };
    let by_address = [&[load(destination, 0)][..], &load_port(words), &translate(ADDRESS_PORTS, 0, words + 2)].concat();
    changes.add_rule(table, "hostports", &by_address);
    changes.add_rule(table, "hostports", &[&load_port(0)[..], &translate(PORTS, 0, 2)].concat());
    let is_local = [
        Expression::FibType { address: FibAddress::Destination, into: 0 },
        Expression::Compare { from: 0, operation: Compare::Equal, value: RTN_LOCAL.to_ne_bytes().to_vec() },
        Expression::Verdict(Verdict::Jump("hostports".into())),
    ];
    changes.add_rule(table, "prerouting", &is_local);
    changes.add_rule(table, "output", &is_local);
    let to_itself = [
        load(source, 0),
        load(destination, words),
        Expression::InSet { set: CONTAINERS.into(), from: 0, inverted: false },
        Expression::Masquerade,
    ];
    changes.add_rule(table, "masquerading", &to_itself);
    if is_ipv4 {
        // Answers to 127.0.0.1 would not come back from the container.
        let from_loopback = [
            Expression::Payload { base: PayloadBase::Network, offset: 12, length: 1, into: 0 },
            Expression::Compare { from: 0, operation: Compare::Equal, value: vec![127] },
            Expression::FibType { address: FibAddress::Destination, into: 0 },
            Expression::Compare { from: 0, operation: Compare::NotEqual, value: RTN_LOCAL.to_ne_bytes().to_vec() },
            Expression::Masquerade,
        ];
        changes.add_rule(table, "masquerading", &from_loopback);
    }
}

/// Lets connections to 127.0.0.1 leave through the container's link on the host.
fn allow_loopback(result: &CniResult) {
    for interface in result.interfaces.iter().filter(|one| one.sandbox.is_empty() && !one.name.contains('/')) {
        // Without it, only connections through loopback do not work.
        let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{}/route_localnet", interface.name), "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_the_names_of_cni_and_of_containerd() {
        let cni = r#"{"hostPort": 8080, "containerPort": 80, "protocol": "udp", "hostIP": "192.0.2.1"}"#;
        let containerd = r#"{"HostPort": 8080, "ContainerPort": 80, "Protocol": "udp", "HostIP": "192.0.2.1"}"#;
        for text in [cni, containerd] {
            let mapping: PortMapping = serde_json::from_str(text).unwrap();
            let port = HostPort::from_mapping(&mapping).unwrap();
            assert_eq!((port.map, port.container_port), (ADDRESS_PORTS, 80), "{text}");
        }
    }
}
