//! Validation of Endpoints and EndpointSlices.

use super::{Errors, at::At, names, net, render::same, selector};

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// The faults of Endpoints; what was wrong and did not change stays allowed.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let subsets = new.get("subsets");
    if old.is_some_and(|old| same(old.get("subsets").value, subsets.value)) {
        return;
    }
    for subset in subsets.items() {
        let (ready, waiting, ports) = (subset.get("addresses"), subset.get("notReadyAddresses"), subset.get("ports"));
        if ready.is_empty() && waiting.is_empty() {
            subset.required(e, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(waiting.items()) {
            let node = address.get("nodeName");
            address.get("ip").ip(e, &[]);
            address.get("hostname").optional_form(e, names::label);
            if node.exists() {
                node.form(e, names::subdomain);
            }
            address.get("ip").endpoint_ip(e);
        }
        for port in ports.items() {
            let name = port.get("name");
            if ports.len() > 1 && name.is_empty() {
                name.required(e, "");
            }
            name.optional_form(e, names::label);
            port.get("port").port_number(e);
            port.get("protocol").required_one_of(e, PROTOCOLS);
            if port.get("appProtocol").exists() {
                port.get("appProtocol").form(e, names::qualified);
            }
        }
    }
}

/// The faults of a slice; endpoints that were wrong and did not change stay allowed.
pub(super) fn slice(new: &At, old: Option<&At>, e: &mut Errors) {
    let kind = new.get("addressType");
    kind.required_one_of(e, &["FQDN", "IPv4", "IPv6"]);
    slice_ports(&new.get("ports"), e);
    let endpoints = new.get("endpoints");
    if !old.is_some_and(|old| same(old.get("endpoints").value, endpoints.value)) {
        slice_endpoints(&endpoints, kind.text(), e);
    }
    if let Some(old) = old {
        kind.unchanged(e, &old.get("addressType"));
    }
}

fn slice_ports(list: &At, e: &mut Errors) {
    if list.len() > 20_000 {
        return list.too_many(e, 20_000);
    }
    let mut seen = Vec::new();
    for port in list.items() {
        let name = port.get("name");
        name.optional_form(e, names::label);
        if seen.contains(&name.text()) {
            name.duplicate(e, name.text());
        }
        seen.push(name.text());
        port.get("protocol").required_one_of(e, PROTOCOLS);
        if port.get("appProtocol").exists() {
            port.get("appProtocol").form(e, names::qualified);
        }
    }
}

fn slice_endpoints(list: &At, kind: &str, e: &mut Errors) {
    if list.len() > 1000 {
        return list.too_many(e, 1000);
    }
    for endpoint in list.items() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            addresses.required(e, "must contain at least 1 address");
        } else if addresses.len() > 100 {
            addresses.too_many(e, 100);
        }
        for address in addresses.items() {
            slice_address(&address, &addresses, kind, e);
        }
        if endpoint.get("nodeName").exists() {
            endpoint.get("nodeName").form(e, names::subdomain);
        }
        let topology = endpoint.get("deprecatedTopology");
        if topology.len() > 16 {
            topology.too_many(e, 16);
        }
        selector::labels(&topology, e);
        if endpoint.get("hostname").exists() {
            endpoint.get("hostname").form(e, names::label);
        }
        hints(&endpoint.get("hints"), e);
    }
}

fn slice_address(at: &At, list: &At, kind: &str, e: &mut Errors) {
    match kind {
        "IPv4" if at.ip(e, &[]) => {
            if net::is_ipv6(at.text()) {
                list.invalid_as(e, at.text(), "must be an IPv4 address");
            }
            at.endpoint_ip(e);
        }
        "IPv6" if at.canonical_ip(e) => {
            if !net::is_ipv6(at.text()) {
                list.invalid_as(e, at.text(), "must be an IPv6 address");
            }
            at.endpoint_ip(e);
        }
        "FQDN" => domain(at, e),
        _ => {}
    }
}

/// A domain name of at least two parts.
fn domain(at: &At, e: &mut Errors) {
    if !at.require(e) {
        return;
    }
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let faults = names::subdomain(name);
    if !faults.is_empty() {
        at.invalid_as(e, name, faults.join(","));
    } else if !name.contains('.') {
        at.invalid_as(e, name, "should be a domain with at least two segments separated by dots");
    } else if let Some(label) = name.split('.').find(|label| !names::label(label).is_empty()) {
        at.invalid_as(e, label, names::label(label).join(","));
    }
}

fn hints(at: &At, e: &mut Errors) {
    for (field, form) in [("forZones", names::label_value as fn(&str) -> Vec<String>), ("forNodes", names::subdomain)] {
        let list = at.get(field);
        if list.len() > 8 {
            return list.too_many(e, 8);
        }
        let mut seen = Vec::new();
        for hint in list.items() {
            let name = hint.get("name");
            if seen.contains(&name.text()) {
                name.duplicate(e, name.text());
            }
            seen.push(name.text());
            name.form(e, form);
        }
    }
}
