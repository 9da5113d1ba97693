//! Services, as far as the tables cannot say what is right; their addresses have a file of their own.

use super::{net, prelude::*, service_addresses as addresses};

const LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn is_balanced(spec: &At) -> bool {
    spec.text_of("type") == "LoadBalancer"
}

fn needs_health_check(spec: &At) -> bool {
    is_balanced(spec) && spec.text_of("externalTrafficPolicy") == "Local"
}

pub fn topology_annotations(notes: &At, e: &mut Errors) {
    let (hints, mode) =
        (notes.key("service.kubernetes.io/topology-aware-hints"), notes.key("service.kubernetes.io/topology-mode"));
    if hints.exists() && mode.exists() && hints.text() != mode.text() {
        let message = "must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified";
        mode.invalid_text(e, message);
    }
}

/// There are ports where there is an address, with names of their own where there are several.
pub fn service_ports(spec: &At, e: &mut Errors) {
    let list = spec.get("ports");
    if list.is_empty() && !addresses::is_headless(spec) && spec.text_of("type") != "ExternalName" {
        list.required(e, "");
    }
    let mut seen = Vec::new();
    for name in list.items().map(|port| port.text_of("name")).enumerate() {
        let port = list.index(name.0);
        if list.len() > 1 && name.1.is_empty() {
            port.get("name").required(e, "");
        } else if !name.1.is_empty() && seen.contains(&name.1) {
            port.get("name").duplicate(e, name.1);
        }
        seen.push(name.1);
    }
}

pub fn an_address(ips: &At, e: &mut Errors) {
    if addresses::is_headless(ips.up(1)) {
        let kind = ips.up(1).text_of("type");
        ips.index(0).invalid(e, format!("may not be set to 'None' for {kind} services"));
    }
}

pub fn external_name(name: &At, e: &mut Errors) {
    let cname = name.text().strip_suffix('.').unwrap_or(name.text());
    if cname.is_empty() { name.required(e, "") } else { name.form_as(e, cname, names::subdomain) }
}

pub fn external_ips(list: &At, e: &mut Errors) {
    let old = list.before();
    let before: Vec<&str> = old.texts().collect();
    for ip in list.items() {
        if ip.ip(e, &before) {
            ip.endpoint_ip(e);
        }
    }
}

/// A port of nodes, and a port of a service, is taken once per protocol.
pub fn node_ports(spec: &At, e: &mut Errors) {
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
            port.duplicate(e, Bad::of("core/v1.ServicePort", &value));
        }
        served.push(key);
    }
}

/// The faults of where traffic may come from, by field or by annotation.
pub fn source_ranges(service: &At, e: &mut Errors) {
    let old = service.before();
    let spec = service.get("spec");
    let balanced = spec.get("type").text() == "LoadBalancer";
    let ranges = spec.called("LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges").value);
    if !ranges.is_empty() {
        if !balanced {
            ranges.forbidden(e, LOAD_BALANCER);
        }
        let before: Vec<&str> = old.get("spec").get("loadBalancerSourceRanges").texts().map(str::trim).collect();
        ranges.items().for_each(|range| range.cidr_as(e, range.text().trim(), &before));
        return;
    }
    let meta = service.get("metadata");
    let notes = meta.get("annotations");
    let note = notes.key(SOURCE_RANGES);
    if !note.exists() {
        return;
    }
    if !balanced {
        note.forbidden(e, LOAD_BALANCER);
    }
    let kept = service.is_change() && note.before().text() == note.text();
    if !kept && !note.text().trim().is_empty() {
        note.text().split(',').for_each(|range| note.cidr_as(e, range.trim(), &[]));
    }
}

/// Upstream tells it without the path.
pub fn node_ports_allocated(spec: &At, e: &mut Errors) {
    if !spec.get("allocateLoadBalancerNodePorts").exists() {
        e.push(FieldError::required("allocateLoadBalancerNodePorts", ""));
    }
}

/// What is reached from outside says how, and where its health is told.
pub fn external_traffic(spec: &At, e: &mut Errors) {
    let (kind, external, port) =
        (spec.text_of("type"), spec.get("externalTrafficPolicy"), spec.get("healthCheckNodePort"));
    let reachable =
        matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && !spec.get("externalIPs").is_empty();
    if !reachable && !external.is_empty() {
        external.invalid_text(e, "may only be set for externally-accessible services");
    } else if reachable && external.require(e) {
        external.one_of(e, &["Cluster", "Local"]);
    }
    if !needs_health_check(spec) {
        if port.int() != 0 {
            let message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            port.invalid(e, message);
        }
    } else if port.int() == 0 {
        port.required(e, "");
    } else if !(1..=65535).contains(&port.int()) {
        port.invalid_int(e, names::range(1, 65535));
    }
}

/// The faults of the points where traffic comes in.
pub fn ingress_points(list: &At, e: &mut Errors) {
    let old = list.old.as_array().into_iter().flatten();
    let before: Vec<&str> = old.filter_map(|point| point["ip"].as_str()).collect();
    for point in list.items() {
        let (ip, host) = (point.get("ip"), point.get("hostname"));
        if !ip.is_empty() {
            ip.ip(e, &before);
        }
        if !host.is_empty() {
            host.form(e, names::subdomain);
            if net::lenient_ip(host.text()).is_some() {
                host.invalid_text(e, "must be a DNS name, not an IP address");
            }
        }
    }
}
