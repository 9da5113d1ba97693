//! Validation of Endpoints and EndpointSlices beyond the rule tables. Unchanged invalid values are tolerated.

use super::{ip_address, prelude::*};

pub fn validate_changed_subsets(list: &FieldCursor, e: &mut ErrorList) {
    if !list.is_update() || list.is_changed() {
        list.items().for_each(|subset| check_block("EndpointSubset", &subset, e));
    }
}

/// Requires names for multiple ports.
pub fn validate_named_ports(list: &FieldCursor, e: &mut ErrorList) {
    for port in list.items().filter(|port| list.len() > 1 && port.text_at("name").is_empty()) {
        port.get("name").required(e, "");
    }
}

pub fn validate_slice_ports(list: &FieldCursor, e: &mut ErrorList) {
    if list.len() > 20_000 {
        return list.too_many(e, 20_000);
    }
    let mut seen = std::collections::HashSet::new();
    for port in list.items() {
        check_block("SlicePort", &port, e);
        if !seen.insert(port.text_at("name")) {
            port.get("name").duplicate(e, port.text_at("name"));
        }
    }
}

pub fn validate_changed_endpoints(list: &FieldCursor, e: &mut ErrorList) {
    if list.is_update() && !list.is_changed() {
        return;
    }
    if list.len() > 1000 {
        return list.too_many(e, 1000);
    }
    list.items().for_each(|endpoint| check_block("Endpoint", &endpoint, e));
}

/// Validates an address by the slice's address type.
pub fn validate_slice_address(at: &FieldCursor, e: &mut ErrorList) {
    let kind = at.root().text_at("addressType");
    let right = match kind {
        "IPv4" => at.check_ip(e, &[]),
        "IPv6" => at.check_canonical_ip(e),
        "FQDN" => return validate_domain(at, e),
        _ => return,
    };
    if right {
        if ip_address::is_ipv6(at.text()) != (kind == "IPv6") {
            at.ancestor(1).invalid_as(e, at.text(), format!("must be an {kind} address"));
        }
        at.check_endpoint_ip(e);
    }
}

/// Validates a domain name of at least two labels.
fn validate_domain(at: &FieldCursor, e: &mut ErrorList) {
    if !at.require_value(e) {
        return;
    }
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let faults = names::check_dns_subdomain(name);
    if !faults.is_empty() {
        at.invalid_as(e, name, faults.join(","));
    } else if !name.contains('.') {
        at.invalid_as(e, name, "should be a domain with at least two segments separated by dots");
    } else if let Some(label) = name.split('.').find(|label| !names::check_dns_label(label).is_empty()) {
        at.invalid_as(e, label, names::check_dns_label(label).join(","));
    }
}

pub fn validate_few_hints(hints: &FieldCursor, e: &mut ErrorList) {
    for (field, rules) in [("forZones", "ZoneHints"), ("forNodes", "NodeHints")] {
        let list = hints.get(field);
        if list.len() > 8 {
            return list.too_many(e, 8);
        }
        check_block(rules, &list, e);
    }
}
