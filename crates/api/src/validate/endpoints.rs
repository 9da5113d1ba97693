//! Endpoints and EndpointSlices, as far as the tables cannot say what is right. What was wrong and did not change stays allowed.

use super::{net, prelude::*};

pub fn changed_subsets(list: &At, e: &mut Errors) {
    if !list.is_change() || list.differs() {
        list.items().for_each(|subset| rules::check("EndpointSubset", &subset, e));
    }
}

/// Of several ports each has a name.
pub fn named_ports(list: &At, e: &mut Errors) {
    for port in list.items().filter(|port| list.len() > 1 && port.text_of("name").is_empty()) {
        port.get("name").required(e, "");
    }
}

pub fn slice_ports(list: &At, e: &mut Errors) {
    if list.len() > 20_000 {
        return list.too_many(e, 20_000);
    }
    let mut seen = std::collections::HashSet::new();
    for port in list.items() {
        rules::check("SlicePort", &port, e);
        if !seen.insert(port.text_of("name")) {
            port.get("name").duplicate(e, port.text_of("name"));
        }
    }
}

pub fn changed_endpoints(list: &At, e: &mut Errors) {
    if list.is_change() && !list.differs() {
        return;
    }
    if list.len() > 1000 {
        return list.too_many(e, 1000);
    }
    list.items().for_each(|endpoint| rules::check("Endpoint", &endpoint, e));
}

/// An address is of the kind that the slice says.
pub fn slice_address(at: &At, e: &mut Errors) {
    let kind = at.whole().text_of("addressType");
    let right = match kind {
        "IPv4" => at.ip(e, &[]),
        "IPv6" => at.canonical_ip(e),
        "FQDN" => return domain(at, e),
        _ => return,
    };
    if right {
        if net::is_ipv6(at.text()) != (kind == "IPv6") {
            at.up(1).invalid_as(e, at.text(), format!("must be an {kind} address"));
        }
        at.endpoint_ip(e);
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

pub fn few_hints(hints: &At, e: &mut Errors) {
    for (field, rules) in [("forZones", "ZoneHints"), ("forNodes", "NodeHints")] {
        let list = hints.get(field);
        if list.len() > 8 {
            return list.too_many(e, 8);
        }
        rules::check(rules, &list, e);
    }
}
