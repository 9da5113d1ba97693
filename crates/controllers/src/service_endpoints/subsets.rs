//! The canonical form of Endpoints subsets: one subset per set of addresses, sorted as upstream sorts them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, ObjectReference};

use super::ports::{fnv1a_128, print_pointer};

/// Identity of an address: the IP and the uid of its target.
type AddressKey = (String, Option<String>);
/// Identity of a port: name, number, protocol and application protocol.
type SubsetPortKey = (String, i32, String, Option<String>);

/// Expands subsets to single addresses and ports, and packs those into the fewest subsets.
pub(crate) fn repack_subsets(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, &EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<SubsetPortKey>, BTreeMap<AddressKey, bool>> = BTreeMap::new();
    for subset in subsets {
        let ports = subset.ports.as_deref().unwrap_or_default().iter().map(|port| Some(port_key(port)));
        // Addresses without ports are kept.
        let ports: Vec<_> = if ports.len() == 0 { vec![None] } else { ports.collect() };
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        for (address, ready) in all {
            let key = address_key(address);
            addresses.entry(key.clone()).or_insert(address);
            for port in &ports {
                let known = by_port.entry(port.clone()).or_default().entry(key.clone()).or_insert(ready);
                *known &= ready;
            }
        }
    }
    let mut groups: BTreeMap<Vec<(AddressKey, bool)>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, offered) in by_port {
        groups.entry(offered.into_iter().collect()).or_default().extend(port.map(new_port));
    }
    let select = |group: &[(AddressKey, bool)], ready: bool| -> Option<Vec<EndpointAddress>> {
        let chosen = group.iter().filter(|(_, is_ready)| *is_ready == ready);
        let chosen: Vec<_> = chosen.filter_map(|(key, _)| addresses.get(key).copied().cloned()).collect();
        (!chosen.is_empty()).then_some(chosen)
    };
    let mut packed: Vec<_> = groups
        .iter_mut()
        .map(|(group, ports)| {
            ports.sort_by_cached_key(|port| fnv1a_128(&format!("(v1.EndpointPort){}", print_port(port))));
            EndpointSubset {
                addresses: select(group, true),
                not_ready_addresses: select(group, false),
                ports: (!ports.is_empty()).then(|| std::mem::take(ports)),
            }
        })
        .collect();
    packed.sort_by_cached_key(|subset| fnv1a_128(&print_subset(subset)));
    packed
}

fn address_key(address: &EndpointAddress) -> AddressKey {
    (address.ip.clone(), address.target_ref.as_ref().map(|target| target.uid.clone().unwrap_or_default()))
}

fn port_key(port: &EndpointPort) -> SubsetPortKey {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
    (port.name.clone().unwrap_or_default(), port.port, protocol, port.app_protocol.clone())
}

fn new_port((name, port, protocol, app_protocol): SubsetPortKey) -> EndpointPort {
    EndpointPort { name: (!name.is_empty()).then_some(name), port, protocol: Some(protocol), app_protocol }
}

/// Prints a subset as Go's `spew` does.
fn print_subset(subset: &EndpointSubset) -> String {
    format!(
        "(v1.EndpointSubset){{Addresses:([]v1.EndpointAddress){} NotReadyAddresses:([]v1.EndpointAddress){} \
         Ports:([]v1.EndpointPort){}}}",
        print_list(subset.addresses.as_deref(), print_address),
        print_list(subset.not_ready_addresses.as_deref(), print_address),
        print_list(subset.ports.as_deref(), print_port),
    )
}

fn print_list<T>(items: Option<&[T]>, print: impl Fn(&T) -> String) -> String {
    items.map_or_else(|| "<nil>".into(), |items| format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")))
}

fn print_address(address: &EndpointAddress) -> String {
    format!(
        "{{IP:(string){} Hostname:(string){} NodeName:{} TargetRef:{}}}",
        address.ip,
        address.hostname.as_deref().unwrap_or_default(),
        print_pointer("string", address.node_name.as_ref()),
        print_pointer("v1.ObjectReference", address.target_ref.as_ref().map(print_reference).as_ref()),
    )
}

fn print_reference(reference: &ObjectReference) -> String {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!(
        "{{Kind:(string){} Namespace:(string){} Name:(string){} UID:(types.UID){} APIVersion:(string){} \
         ResourceVersion:(string){} FieldPath:(string){}}}",
        text(&reference.kind),
        text(&reference.namespace),
        text(&reference.name),
        text(&reference.uid),
        text(&reference.api_version),
        text(&reference.resource_version),
        text(&reference.field_path),
    )
}

fn print_port(port: &EndpointPort) -> String {
    format!(
        "{{Name:(string){} Port:(int32){} Protocol:(v1.Protocol){} AppProtocol:{}}}",
        port.name.as_deref().unwrap_or_default(),
        port.port,
        port.protocol.as_deref().unwrap_or_default(),
        print_pointer("string", port.app_protocol.as_ref()),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn subsets(value: Value) -> Vec<EndpointSubset> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn hash_equals_upstreams() {
        let target = json!({"kind": "Pod", "namespace": "a", "name": "b", "uid": "u"});
        let subset = subsets(json!([{
            "addresses": [{"ip": "1.2.3.4", "nodeName": "n", "targetRef": target}, {"ip": "1.2.3.5", "hostname": "h"}],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"},
                {"name": "x", "port": 81, "protocol": "TCP", "appProtocol": "h2c"}]}]));
        assert_eq!(fnv1a_128(&print_subset(&subset[0])), 0x0ae3_de47_3de8_280f_6248_c90a_6fc6_6dd9);
    }

    #[test]
    fn ports_of_the_same_addresses_share_a_subset() {
        let http = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
        let admin = json!([{"name": "admin", "port": 81, "protocol": "TCP"}]);
        let packed = repack_subsets(&subsets(json!([
            {"addresses": [{"ip": "10.0.0.2"}], "ports": http}, {"addresses": [{"ip": "10.0.0.1"}], "ports": http},
            {"addresses": [{"ip": "10.0.0.1"}], "ports": admin}, {"addresses": [{"ip": "10.0.0.2"}], "ports": admin}])));
        assert_eq!(packed.len(), 1);
        assert_eq!(json!(packed[0].addresses), json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]));
        assert_eq!(packed[0].ports.as_ref().unwrap().len(), 2);
        assert_eq!(repack_subsets(&packed), packed);
    }

    #[test]
    fn not_ready_wins_over_ready_and_portless_addresses_stay() {
        let packed = repack_subsets(&subsets(json!([
            {"addresses": [{"ip": "10.0.0.1"}]}, {"notReadyAddresses": [{"ip": "10.0.0.1"}]}])));
        assert_eq!(json!(packed), json!([{"notReadyAddresses": [{"ip": "10.0.0.1"}]}]));
    }

    #[test]
    fn addresses_with_different_readiness_of_ports_are_split() {
        let port = |name: &str, port: i32| json!([{"name": name, "port": port, "protocol": "TCP"}]);
        let packed = repack_subsets(&subsets(json!([
            {"addresses": [{"ip": "10.0.0.1"}], "ports": port("a", 1)},
            {"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": port("b", 2)}])));
        assert_eq!(packed.len(), 2);
    }
}
