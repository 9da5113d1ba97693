//! Rows of Services, endpoints, Ingresses and what belongs to them.

use std::collections::BTreeSet;

use super::{
    format::{cut, labels, qualified, selector_or_none, some, texts},
    printer::{AGE, Column, NAME, text, wide},
    row::Row,
};
use crate::{Value, meta};

pub(super) const SERVICE: &[Column] =
    &[NAME, text("Type"), text("Cluster-IP"), text("External-IP"), text("Port(s)"), AGE, wide("Selector")];

pub(super) fn service(row: &Row) -> Vec<Value> {
    let address = row.list(&["spec", "clusterIPs"]).first().and_then(Value::as_str).unwrap_or("<none>");
    let ports: Vec<String> = row.list(&["spec", "ports"]).iter().map(port).collect();
    vec![
        row.name(),
        row.text(&["spec", "type"]).into(),
        address.into(),
        external(row).into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        row.age(),
        labels(row.at(&["spec", "selector"])).into(),
    ]
}

fn port(port: &Value) -> String {
    let (number, protocol) = (meta::number(port, &["port"]), meta::text(port, &["protocol"]));
    match meta::number(port, &["nodePort"]) {
        ..=0 => format!("{number}/{protocol}"),
        node => format!("{number}:{node}/{protocol}"),
    }
}

fn external(row: &Row) -> String {
    let addresses = texts(row.list(&["spec", "externalIPs"]));
    match row.text(&["spec", "type"]) {
        "ClusterIP" | "NodePort" if addresses.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => addresses.join(","),
        "LoadBalancer" => {
            let all: Vec<String> = balancers(row).into_iter().chain(addresses).collect();
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => row.text(&["spec", "externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Addresses or names of load balancers, sorted.
fn balancers(row: &Row) -> BTreeSet<String> {
    let address = |entry: &Value| match meta::text(entry, &["ip"]) {
        "" => meta::text(entry, &["hostname"]).to_owned(),
        ip => ip.to_owned(),
    };
    row.list(&["status", "loadBalancer", "ingress"]).iter().map(address).filter(|text| !text.is_empty()).collect()
}

pub(super) const ENDPOINTS: &[Column] = &[NAME, text("Endpoints"), AGE];

pub(super) fn endpoints(row: &Row) -> Vec<Value> {
    let mut list = Vec::new();
    for subset in row.list(&["subsets"]) {
        let addresses = || meta::list(subset, &["addresses"]).iter().map(|address| meta::text(address, &["ip"]));
        let ports = meta::list(subset, &["ports"]);
        if ports.is_empty() {
            list.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            list.extend(addresses().map(|ip| join(ip, meta::number(port, &["port"]))));
        }
    }
    let shown = if row.list(&["subsets"]).is_empty() { "<none>".to_owned() } else { cut(&list, 3, list.len(), ",") };
    vec![row.name(), shown.into(), row.age()]
}

fn join(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

pub(super) const ENDPOINT_SLICE: &[Column] = &[NAME, text("AddressType"), text("Ports"), text("Endpoints"), AGE];

pub(super) fn endpoint_slice(row: &Row) -> Vec<Value> {
    let port = |port: &Value| match (meta::at(port, &["port"]), meta::at(port, &["name"])) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.as_str().unwrap_or_default().to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = row.list(&["ports"]).iter().map(port).collect();
    let addresses: Vec<String> =
        row.list(&["endpoints"]).iter().flat_map(|endpoint| texts(meta::list(endpoint, &["addresses"]))).collect();
    vec![row.name(), row.text(&["addressType"]).into(), some(&ports).into(), some(&addresses).into(), row.age()]
}

pub(super) const INGRESS: &[Column] = &[NAME, text("Class"), text("Hosts"), text("Address"), text("Ports"), AGE];

pub(super) fn ingress(row: &Row) -> Vec<Value> {
    let class = row.at(&["spec", "ingressClassName"]).and_then(Value::as_str).unwrap_or("<none>");
    let ports = if row.count(&["spec", "tls"]) > 0 { "80, 443" } else { "80" };
    let address = balancers(row).into_iter().collect::<Vec<_>>().join(",");
    vec![row.name(), class.into(), hosts(row.list(&["spec", "rules"])).into(), address.into(), ports.into(), row.age()]
}

/// Three hosts; once there are three, every further rule counts as one more, with a host or without.
fn hosts(rules: &[Value]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == 3;
        let host = meta::text(rule, &["host"]);
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => shown.join(","),
        (false, true) => format!("{} + {} more...", shown.join(","), rules.len() - 3),
    }
}

pub(super) const INGRESS_CLASS: &[Column] = &[NAME, text("Controller"), text("Parameters"), AGE];

pub(super) fn ingress_class(row: &Row) -> Vec<Value> {
    let mut name = row.text(&["metadata", "name"]).to_owned();
    if row.annotation("ingressclass.kubernetes.io/is-default-class") == "true" {
        name.push_str(" (default)");
    }
    let parameters = row.at(&["spec", "parameters"]).map_or("<none>".to_owned(), |parameters| {
        let kind = qualified(meta::text(parameters, &["kind"]), meta::text(parameters, &["apiGroup"]));
        format!("{kind}/{}", meta::text(parameters, &["name"]))
    });
    vec![name.into(), row.text(&["spec", "controller"]).into(), parameters.into(), row.age()]
}

pub(super) const POLICY: &[Column] = &[NAME, text("Pod-Selector"), AGE];

pub(super) fn policy(row: &Row) -> Vec<Value> {
    vec![row.name(), selector_or_none(&row.object["spec"]["podSelector"]).into(), row.age()]
}

pub(super) const SERVICE_CIDR: &[Column] = &[NAME, text("CIDRs"), AGE];

pub(super) fn service_cidr(row: &Row) -> Vec<Value> {
    vec![row.name(), texts(row.list(&["spec", "cidrs"])).join(",").into(), row.age()]
}

pub(super) const IP_ADDRESS: &[Column] = &[NAME, text("ParentRef")];

pub(super) fn ip_address(row: &Row) -> Vec<Value> {
    let parent = row.at(&["spec", "parentRef"]).map_or("<none>".to_owned(), |parent| {
        let field = |name: &str| meta::text(parent, &[name]);
        let resource = qualified(field("resource"), field("group")).to_lowercase();
        let namespace = field("namespace");
        let scope = if namespace.is_empty() { String::new() } else { format!("/{namespace}") };
        format!("{resource}{scope}/{}", field("name"))
    });
    vec![row.name(), parent.into(), row.age()]
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn services_say_where_they_are_reached() {
        let check = |spec: Value, status: Value, want: [&str; 4]| {
            let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": status});
            let cells = service(&Row { object: &object, now: Timestamp::UNIX_EPOCH });
            assert_eq!(cells[1..5], want.map(Value::from));
        };
        let ports = json!([{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]);
        check(
            json!({"type": "NodePort", "clusterIPs": ["10.0.0.1"], "ports": ports}),
            json!({}),
            ["NodePort", "10.0.0.1", "<none>", "80:30080/TCP,53/UDP"],
        );
        check(
            json!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["1.1.1.1"]}),
            json!({"loadBalancer": {"ingress": [{"hostname": "b"}, {"ip": "2.2.2.2"}]}}),
            ["LoadBalancer", "10.0.0.1", "2.2.2.2,b,1.1.1.1", "<none>"],
        );
        check(json!({"type": "LoadBalancer"}), json!({}), ["LoadBalancer", "<none>", "<pending>", "<none>"]);
    }
}
