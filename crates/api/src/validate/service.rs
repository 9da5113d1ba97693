//! Validation of services; their addresses have a file of their own.

use super::{Errors, at::At, names, net, selector, service_addresses as addresses};

const LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// The faults of a service.
pub(super) fn validate(new: &At, old: Option<&At>, e: &mut Errors) {
    let spec = new.get("spec");
    if let Some(old) = old {
        addresses::changes(&spec, &old.get("spec"), e);
        class(&spec, Some(&old.get("spec")), e);
        let (before, port) = (old.get("spec"), spec.get("healthCheckNodePort"));
        if needs_health_check(&before)
            && needs_health_check(&spec)
            && port.int() != before.get("healthCheckNodePort").int()
        {
            port.forbidden(e, "field is immutable");
        }
    }
    topology(new, e);
    by_type(&spec, e);
    ports(&spec, e);
    selector::labels(&spec.get("selector"), e);
    affinity(&spec, e);
    addresses::check(&spec, old.map(|old| old.get("spec").value), e);
    external_ips(&spec, old, e);
    spec.get("type").required_one_of(e, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    node_ports(&spec, e);
    source_ranges(new, old, e);
    balancer_ports(&spec, e);
    class(&spec, None, e);
    traffic(&spec, e);
}

fn topology(service: &At, e: &mut Errors) {
    let meta = service.get("metadata");
    let notes = meta.get("annotations");
    let (hints, mode) =
        (notes.key("service.kubernetes.io/topology-aware-hints"), notes.key("service.kubernetes.io/topology-mode"));
    if hints.exists() && mode.exists() && hints.text() != mode.text() {
        let message = "must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified";
        mode.invalid_text(e, message);
    }
}

fn by_type(spec: &At, e: &mut Errors) {
    let (kind, headless, ips) = (spec.get("type").text(), addresses::is_headless(spec), spec.get("clusterIPs"));
    if spec.get("ports").is_empty() && !headless && kind != "ExternalName" {
        spec.get("ports").required(e, "");
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            ips.index(0).invalid(e, format!("may not be set to 'None' for {kind} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let given = spec.get(field);
                if given.exists() && !given.is_empty() {
                    given.forbidden(e, "may not be set for ExternalName services");
                }
            }
            let name = spec.get("externalName");
            let cname = name.text().strip_suffix('.').unwrap_or(name.text());
            if cname.is_empty() {
                name.required(e, "");
            }
            if !cname.is_empty() {
                names::subdomain(cname).into_iter().for_each(|fault| name.invalid_as(e, cname, fault));
            }
        }
        _ => {}
    }
}

fn ports(spec: &At, e: &mut Errors) {
    let list = spec.get("ports");
    let mut seen = Vec::new();
    for port in list.items() {
        let name = port.get("name");
        if list.len() > 1 && name.is_empty() {
            name.required(e, "");
        } else if !name.is_empty() {
            name.form(e, names::label);
            if seen.contains(&name.text()) {
                name.duplicate(e, name.text());
            }
            seen.push(name.text());
        }
        port.get("port").port_number(e);
        port.get("protocol").required_one_of(e, PROTOCOLS);
        port.get("targetPort").port_number_or_name(e);
        if port.get("appProtocol").exists() {
            port.get("appProtocol").form(e, names::qualified);
        }
    }
}

fn affinity(spec: &At, e: &mut Errors) {
    let (kind, config) = (spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"));
    kind.required_one_of(e, &["ClientIP", "None"]);
    let message = "when session affinity type is ClientIP";
    match kind.text() {
        "ClientIP" => {
            let client = config.get("clientIP");
            let timeout = client.get("timeoutSeconds");
            if !config.exists() {
                config.required(e, message);
            } else if !client.exists() {
                client.required(e, message);
            } else if !timeout.exists() {
                timeout.required(e, message);
            } else if !(1..=86400).contains(&timeout.int()) {
                timeout.invalid(e, "must be greater than 0 and less than 86400");
            }
        }
        "None" if config.exists() => config.forbidden(e, "must not be set when session affinity is None"),
        _ => {}
    }
}

fn external_ips(spec: &At, old: Option<&At>, e: &mut Errors) {
    let before = old.map(|old| old.get("spec").get("externalIPs").texts().collect::<Vec<_>>()).unwrap_or_default();
    for ip in spec.get("externalIPs").items() {
        if ip.ip(e, &before) {
            ip.endpoint_ip(e);
        }
    }
}

fn node_ports(spec: &At, e: &mut Errors) {
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
            let shown = super::render::internal("core/v1.ServicePort", &value);
            port.duplicate(e, super::error::Bad::Shown(shown));
        }
        served.push(key);
    }
}

fn source_ranges(service: &At, old: Option<&At>, e: &mut Errors) {
    let spec = service.get("spec");
    let balanced = spec.get("type").text() == "LoadBalancer";
    let ranges = spec.called("LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges").value);
    if !ranges.is_empty() {
        if !balanced {
            ranges.forbidden(e, LOAD_BALANCER);
        }
        let before = old.map(|old| old.get("spec").get("loadBalancerSourceRanges").texts().map(str::trim).collect());
        let before: Vec<&str> = before.unwrap_or_default();
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
    let before = old.map(|old| old.get("metadata").get("annotations").get(SOURCE_RANGES).text());
    if before != Some(note.text()) && !note.text().trim().is_empty() {
        note.text().split(',').for_each(|range| note.cidr_as(e, range.trim(), &[]));
    }
}

fn balancer_ports(spec: &At, e: &mut Errors) {
    let allocate = spec.get("allocateLoadBalancerNodePorts");
    let balanced = spec.get("type").text() == "LoadBalancer";
    if allocate.exists() && !balanced {
        allocate.forbidden(e, LOAD_BALANCER);
    }
    if !allocate.exists() && balanced {
        e.push(super::FieldError::required("allocateLoadBalancerNodePorts", ""));
    }
}

/// The class of a load balancer; `old` is the older specification when its change is looked at.
fn class(spec: &At, old: Option<&At>, e: &mut Errors) {
    let class = spec.get("loadBalancerClass");
    let balanced = |spec: &At| spec.get("type").text() == "LoadBalancer";
    if let Some(old) = old
        && balanced(old)
        && balanced(spec)
        && old.get("loadBalancerClass").value != class.value
    {
        class.invalid(e, "may not change once set");
    }
    if !class.exists() {
        return;
    }
    if balanced(spec) {
        class.form(e, names::qualified);
    } else {
        class.forbidden(e, LOAD_BALANCER);
    }
}

fn needs_health_check(spec: &At) -> bool {
    spec.get("type").text() == "LoadBalancer" && spec.get("externalTrafficPolicy").text() == "Local"
}

fn traffic(spec: &At, e: &mut Errors) {
    let (kind, external, internal) =
        (spec.get("type").text(), spec.get("externalTrafficPolicy"), spec.get("internalTrafficPolicy"));
    let reachable =
        matches!(kind, "LoadBalancer" | "NodePort") || kind == "ClusterIP" && !spec.get("externalIPs").is_empty();
    if reachable {
        external.required_one_of(e, &["Cluster", "Local"]);
    } else if !external.is_empty() {
        external.invalid_text(e, "may only be set for externally-accessible services");
    }
    let port = spec.get("healthCheckNodePort");
    if needs_health_check(spec) {
        if port.int() == 0 { port.required(e, "") } else { port.port_number(e) }
    } else if port.int() != 0 {
        let message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        port.invalid(e, message);
    }
    if !internal.exists() && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        internal.required(e, "");
    }
    internal.one_of(e, &["Cluster", "Local"]);
    spec.get("trafficDistribution").one_of(e, &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

/// The faults of the status of a service.
pub(super) fn status(new: &At, old: &At, e: &mut Errors) {
    let (status, before) = (new.get("status"), old.get("status"));
    let (balancer, before) = (status.get("loadBalancer"), before.get("loadBalancer"));
    let list = balancer.get("ingress");
    if new.get("spec").get("type").text() != "LoadBalancer" && !list.is_empty() {
        return list.forbidden(e, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    ingress_points(&list, &before.get("ingress"), true, e);
}

/// The faults of the points where traffic comes in.
pub(super) fn ingress_points(list: &At, old: &At, modes: bool, e: &mut Errors) {
    let before: Vec<&str> =
        old.value.as_array().into_iter().flatten().filter_map(|point| point["ip"].as_str()).collect();
    for point in list.items() {
        let (ip, mode, host) = (point.get("ip"), point.get("ipMode"), point.get("hostname"));
        if !ip.is_empty() {
            ip.ip(e, &before);
        }
        if modes {
            match (mode.exists(), ip.is_empty()) {
                (false, false) => mode.required(e, "must be specified when `ip` is set"),
                (true, true) => mode.forbidden(e, "may not be specified when `ip` is not set"),
                _ => mode.one_of(e, &["Proxy", "VIP"]),
            }
        }
        if !host.is_empty() {
            host.form(e, names::subdomain);
            if net::lenient_ip(host.text()).is_some() {
                host.invalid_text(e, "must be a DNS name, not an IP address");
            }
        }
    }
}
