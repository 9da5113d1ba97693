//! Masquerading of containers (`ipMasq`): what leaves their subnets gets an address of the host.
//!
//! One table per IP family for all networks: a map from a container's address to the attachment that it belongs to, and a
//! set of (address, subnet) pairs that are not translated. An address that went to another attachment meanwhile is not
//! touched by the DEL of the first one.

use std::net::IpAddr;

use serde_json::Value;
use sys::{
    net::{IpCidr, octets},
    nftables::{
        self, BaseChain, ChainType, Compare, DataType, ElementData, Expression, Family, Hook, NftError, PayloadBase,
        Register, SetElement, SetKind, SetSpec, TableName, Transaction, Verdict,
    },
};

use super::nft_elements::{delete_known_elements, list_if_present};
use crate::{plugin_error::PluginError, request::CniRequest, result::CniResult};

const TABLE: &str = "cni-masquerade";
const SOURCES: &str = "sources";
const SUBNETS: &str = "subnets";
const CHAIN: &str = "postrouting";
const SNAT: i32 = 100;

/// Masquerades the addresses of a result.
pub fn add_masquerade(request: &CniRequest, result: &CniResult) -> Result<(), PluginError> {
    delete_masquerade(request)?;
    let owner = MasqueradeOwner::from_request(request).owner();
    result.ips.iter().try_for_each(|ip| add_address(ip.address, &owner)).map_err(|error| refused(&error))
}

/// Ends the masquerading of an attachment's addresses.
pub fn delete_masquerade(request: &CniRequest) -> Result<(), PluginError> {
    let owner = MasqueradeOwner::from_request(request).owner();
    delete_owned(|data| data == owner).map_err(|error| refused(&error))
}

/// Ends the masquerading of a network's attachments that are not valid any more.
pub fn collect_masquerade(request: &CniRequest) -> Result<(), PluginError> {
    let Some(valid) = request.config.get("cni.dev/valid-attachments").and_then(Value::as_array) else { return Ok(()) };
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let owners: Vec<Vec<u8>> = valid
        .iter()
        .map(|one| {
            let (container, interface) = (text(one, "containerID"), text(one, "ifname"));
            MasqueradeOwner { network: &request.network, container: &container, interface: &interface }.owner()
        })
        .collect();
    let network = hash(request.network.as_bytes()).to_ne_bytes();
    delete_owned(|data| data.starts_with(&network) && !owners.iter().any(|owner| owner == data))
        .map_err(|error| refused(&error))
}

/// The attachment that an address is masqueraded for.
struct MasqueradeOwner<'a> {
    network: &'a str,
    container: &'a str,
    interface: &'a str,
}

impl<'a> MasqueradeOwner<'a> {
    fn from_request(request: &'a CniRequest) -> Self {
        Self { network: &request.network, container: &request.container_id, interface: &request.interface }
    }

    /// The data of the attachment's elements: a hash of the network, and one of container and interface.
    fn owner(&self) -> Vec<u8> {
        let attachment = hash(format!("{}:{}", self.interface, self.container).as_bytes());
        [hash(self.network.as_bytes()).to_ne_bytes(), attachment.to_ne_bytes()].concat()
    }
}

/// FNV-1a: the same on every run, as elements outlive the process.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn refused(error: &NftError) -> PluginError {
    PluginError::new(PluginError::INTERNAL, format!("failed to set up masquerading: {error}"))
}

fn table_of(ip: IpAddr) -> TableName {
    TableName::new(if ip.is_ipv4() { Family::Ip } else { Family::Ip6 }, TABLE)
}

fn add_address(address: IpCidr, owner: &[u8]) -> Result<(), NftError> {
    let (ip, table) = (octets(address.address), table_of(address.address));
    let mut changes = Transaction::new();
    write_table(&table, &mut changes);
    // The address may have belonged to an attachment whose DEL never came.
    delete_known_elements(&table, SOURCES, |element| element.key == ip, &mut changes)?;
    delete_known_elements(&table, SUBNETS, |element| element.key.starts_with(&ip), &mut changes)?;
    let subnet = address.network();
    let range = |end: IpAddr| [ip.clone(), octets(end)].concat();
    let pair = SetElement::concatenated_range(range(subnet.first()), range(subnet.last()));
    changes.add_elements(&table, SUBNETS, &[pair]);
    changes.add_elements(&table, SOURCES, &[SetElement::value(ip, owner.to_vec())]);
    changes.commit()
}

fn delete_owned(is_stale: impl Fn(&[u8]) -> bool) -> Result<(), NftError> {
    for family in [Family::Ip, Family::Ip6] {
        let table = TableName::new(family, TABLE);
        let stale: Vec<SetElement> = list_if_present(&table, SOURCES)?
            .into_iter()
            .filter(|element| matches!(&element.data, Some(ElementData::Value(data)) if is_stale(data)))
            .collect();
        if stale.is_empty() {
            continue;
        }
        let mut changes = Transaction::new();
        let is_of_stale = |pair: &SetElement| stale.iter().any(|element| pair.key.starts_with(&element.key));
        delete_known_elements(&table, SUBNETS, is_of_stale, &mut changes)?;
        changes.delete_elements(&table, SOURCES, &stale);
        changes.commit()?;
    }
    Ok(())
}

/// Ends all masquerading of containers in a range, and removes the tables if nothing is left in them.
pub fn remove_masquerade(range: IpCidr) -> Result<(), NftError> {
    for table in nftables::list_tables()?.iter().filter(|table| table.name == TABLE) {
        let own = |element: &SetElement| address_of(element).is_some_and(|ip| range.contains(ip));
        let mut changes = Transaction::new();
        delete_known_elements(table, SUBNETS, own, &mut changes)?;
        delete_known_elements(table, SOURCES, own, &mut changes)?;
        if list_if_present(table, SOURCES)?.iter().all(own) {
            changes.delete_table(table);
        }
        changes.commit()?;
    }
    Ok(())
}

fn address_of(element: &SetElement) -> Option<IpAddr> {
    let v4 = || element.key.get(..4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(IpAddr::from);
    let v6 = element.key.get(..16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(IpAddr::from);
    v6.or_else(v4)
}

/// Writes the table, its sets and rules; existing elements stay.
fn write_table(table: &TableName, changes: &mut Transaction) {
    let is_ipv4 = table.family == Family::Ip;
    let address = if is_ipv4 { DataType::Ipv4Address } else { DataType::Ipv6Address };
    let words: Register = if is_ipv4 { 1 } else { 4 };
    changes.add_table(table);
    let owner = SetKind::Map(vec![DataType::Mark, DataType::Mark]);
    changes.add_set(table, &SetSpec::new(SOURCES, &[address], owner));
    changes.add_set(table, &SetSpec::new(SUBNETS, &[address, address], SetKind::Set).with_intervals());
    changes.add_chain(table, CHAIN, Some(BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: SNAT }));
    changes.flush_chain(table, CHAIN);
    let load = |v4: u32, v6: u32, into| {
        let (offset, length) = if is_ipv4 { (v4, 4) } else { (v6, 16) };
        Expression::Payload { base: PayloadBase::Network, offset, length, into }
    };
    let (source, destination) = (load(12, 8, 0), |into| load(16, 24, into));
    changes.add_rule(table, CHAIN, &[multicast(is_ipv4), vec![Expression::Verdict(Verdict::Return)]].concat());
    let stays = [
        source.clone(),
        destination(words),
        Expression::InSet { set: SUBNETS.into(), from: 0, inverted: false },
        Expression::Verdict(Verdict::Return),
    ];
    changes.add_rule(table, CHAIN, &stays);
    let leaves = [source, Expression::MapLookup { map: SOURCES.into(), from: 0, into: words }, Expression::Masquerade];
    changes.add_rule(table, CHAIN, &leaves);
}

/// Matches multicast destinations: 224.0.0.0/4 or ff00::/8.
fn multicast(is_ipv4: bool) -> Vec<Expression> {
    let (offset, mask, value) = if is_ipv4 { (16, 0xf0, 0xe0) } else { (24, 0xff, 0xff) };
    vec![
        Expression::Payload { base: PayloadBase::Network, offset, length: 1, into: 0 },
        Expression::Bitwise { from: 0, into: 0, mask: vec![mask], xor: vec![0] },
        Expression::Compare { from: 0, operation: Compare::Equal, value: vec![value] },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_differ_by_network_container_and_interface() {
        let owner = |network, container, interface| MasqueradeOwner { network, container, interface }.owner();
        let first = owner("a", "c1", "eth0");
        assert_eq!(first, owner("a", "c1", "eth0"));
        assert_eq!(first[..4], owner("a", "c2", "eth0")[..4], "the network comes first");
        for other in [owner("b", "c1", "eth0"), owner("a", "c2", "eth0"), owner("a", "c1", "eth1")] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn address_of_a_pair_is_its_first_part() {
        let pair = SetElement::key(vec![10, 0, 0, 2, 10, 0, 0, 0]);
        assert_eq!(address_of(&pair), Some(IpAddr::from([10, 0, 0, 2])));
    }
}
