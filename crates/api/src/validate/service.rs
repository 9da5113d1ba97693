//! Validation of Services beyond the rule tables; addresses are in `service_addresses`.

use super::{ip_address, prelude::*, service_addresses as addresses};

const LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn is_load_balancer(spec: &FieldCursor) -> bool {
    spec.text_at("type") == "LoadBalancer"
}

fn needs_health_check(spec: &FieldCursor) -> bool {
    is_load_balancer(spec) && spec.text_at("externalTrafficPolicy") == "Local"
}

pub fn validate_topology_annotations(notes: &FieldCursor, e: &mut ErrorList) {
    let (hints, mode) =
        (notes.entry("service.kubernetes.io/topology-aware-hints"), notes.entry("service.kubernetes.io/topology-mode"));
    if hints.exists() && mode.exists() && hints.text() != mode.text() {
        let message = "must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified";
        mode.invalid_text(e, message);
    }
}

/// Requires ports unless headless, with unique names if several.
pub fn validate_service_ports(spec: &FieldCursor, e: &mut ErrorList) {
    let list = spec.get("ports");
    if list.is_empty() && !addresses::is_headless(spec) && spec.text_at("type") != "ExternalName" {
        list.required(e, "");
    }
    let mut seen = Vec::new();
    for name in list.items().map(|port| port.text_at("name")).enumerate() {
        let port = list.element(name.0);
        if list.len() > 1 && name.1.is_empty() {
            port.get("name").required(e, "");
        } else if !name.1.is_empty() && seen.contains(&name.1) {
            port.get("name").duplicate(e, name.1);
        }
        seen.push(name.1);
    }
}

pub fn validate_an_address(ips: &FieldCursor, e: &mut ErrorList) {
    if addresses::is_headless(ips.ancestor(1)) {
        let kind = ips.ancestor(1).text_at("type");
        ips.element(0).invalid(e, format!("may not be set to 'None' for {kind} services"));
    }
}

pub fn validate_external_name(name: &FieldCursor, e: &mut ErrorList) {
    let cname = name.text().strip_suffix('.').unwrap_or(name.text());
    if cname.is_empty() { name.required(e, "") } else { name.check_format_as(e, cname, names::check_dns_subdomain) }
}

pub fn validate_external_ips(list: &FieldCursor, e: &mut ErrorList) {
    let old = list.old_cursor();
    let before: Vec<&str> = old.texts().collect();
    for ip in list.items() {
        if ip.check_ip(e, &before) {
            ip.check_endpoint_ip(e);
        }
    }
}

/// Requires unique node ports and service ports per protocol.
pub fn validate_node_ports(spec: &FieldCursor, e: &mut ErrorList) {
    let ports = spec.get("ports");
    if spec.get("type").text() == "ClusterIP" {
        for port in ports.items().filter(|port| port.get("nodePort").int() != 0) {
            port.get("nodePort").forbidden(e, "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut taken = Vec::new();
    for port in ports.items().filter(|port| port.get("nodePort").int() != 0) {
        let key = (port.get("protocol").text(), port.get("nodePort").int());
        if taken.contains(&key) {
            port.get("nodePort").duplicate(e, key.1);
        }
        taken.push(key);
    }
    let mut served = Vec::new();
    for port in ports.items() {
        let key = (port.get("protocol").text(), port.get("port").int());
        if served.contains(&key) {
            let value = serde_json::json!({"protocol": key.0, "port": key.1});
            port.duplicate(e, render_bad_value("core/v1.ServicePort", &value));
        }
        served.push(key);
    }
}

/// Validates load balancer source ranges, by field or annotation.
pub fn validate_source_ranges(service: &FieldCursor, e: &mut ErrorList) {
    let old = service.old_cursor();
    let spec = service.get("spec");
    let balanced = spec.get("type").text() == "LoadBalancer";
    let ranges = spec.child_as("LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges").value);
    if !ranges.is_empty() {
        if !balanced {
            ranges.forbidden(e, LOAD_BALANCER);
        }
        let before: Vec<&str> = old.get("spec").get("loadBalancerSourceRanges").texts().map(str::trim).collect();
        ranges.items().for_each(|range| range.check_cidr_as(e, range.text().trim(), &before));
        return;
    }
    let meta = service.get("metadata");
    let notes = meta.get("annotations");
    let note = notes.entry(SOURCE_RANGES);
    if !note.exists() {
        return;
    }
    if !balanced {
        note.forbidden(e, LOAD_BALANCER);
    }
    let kept = service.is_update() && note.old_cursor().text() == note.text();
    if !kept && !note.text().trim().is_empty() {
        note.text().split(',').for_each(|range| note.check_cidr_as(e, range.trim(), &[]));
    }
}

/// Requires the field; upstream omits the path prefix.
pub fn validate_node_ports_allocated(spec: &FieldCursor, e: &mut ErrorList) {
    if !spec.get("allocateLoadBalancerNodePorts").exists() {
        e.push(FieldError::required("allocateLoadBalancerNodePorts", ""));
    }
}

/// Validates the external traffic policy and the health check node port.
pub fn validate_external_traffic(spec: &FieldCursor, e: &mut ErrorList) {
    let (kind, external, port) =
        (spec.text_at("type"), spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort"));
    let reachable =
        matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && !spec.get("externalIPs").is_empty();
    if !reachable && !external.is_empty() {
        external.invalid_text(e, "may only be set for externally-accessible services");
    } else if reachable && external.require_value(e) {
        external.require_one_of(e, &["Cluster", "Local"]);
    }
    if !needs_health_check(spec) {
        if port.int() != 0 {
            let message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            port.invalid(e, message);
        }
    } else if port.int() == 0 {
        port.required(e, "");
    } else if !(1..=65535).contains(&port.int()) {
        port.invalid_int(e, names::inclusive_range_error(1, 65535));
    }
}

/// Validates load balancer ingress points.
pub fn validate_ingress_points(list: &FieldCursor, e: &mut ErrorList) {
    let old = list.old.as_array().into_iter().flatten();
    let before: Vec<&str> = old.filter_map(|point| point["ip"].as_str()).collect();
    for point in list.items() {
        let (ip, host) = (point.get("ip"), point.get("hostname"));
        if !ip.is_empty() {
            ip.check_ip(e, &before);
        }
        if !host.is_empty() {
            host.check_format(e, names::check_dns_subdomain);
            if ip_address::lenient_ip(host.text()).is_some() {
                host.invalid_text(e, "must be a DNS name, not an IP address");
            }
        }
    }
}
