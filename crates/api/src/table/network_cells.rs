//! Cells of services, endpoints and ingresses.

use std::collections::BTreeSet;

use super::{join_truncated, printed_object::PrintedObject};
use crate::Value;

/// The external addresses of a service.
pub(super) fn service_addresses_cell(row: &PrintedObject) -> Value {
    let given = row.list_at("spec.externalIPs").filter_map(|ip| ip.object.as_str().map(str::to_owned));
    let or = |all: Vec<String>, none: &str| if all.is_empty() { none.into() } else { all.join(",").into() };
    match row.string_at("spec.type") {
        "ClusterIP" | "NodePort" => or(given.collect(), "<none>"),
        "LoadBalancer" => or(load_balancer_addresses(row).into_iter().chain(given).collect(), "<pending>"),
        "ExternalName" => row.string_at("spec.externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// Addresses or host names of load balancers, sorted.
fn load_balancer_addresses(row: &PrintedObject) -> BTreeSet<String> {
    let address = |entry: PrintedObject| {
        Some(entry.string_at("ip")).filter(|ip| !ip.is_empty()).unwrap_or(entry.string_at("hostname")).to_owned()
    };
    row.list_at("status.loadBalancer.ingress").map(address).filter(|text| !text.is_empty()).collect()
}

/// The load balancer addresses of an ingress.
pub(super) fn ingress_addresses_cell(row: &PrintedObject) -> Value {
    load_balancer_addresses(row).into_iter().collect::<Vec<_>>().join(",").into()
}

/// Up to three addresses with ports.
pub(super) fn endpoints_cell(row: &PrintedObject) -> Value {
    let mut list = Vec::new();
    for subset in row.list_at("subsets") {
        let addresses = || subset.list_at("addresses").map(|address| address.string_at("ip").to_owned());
        if subset.count_at("ports") == 0 {
            list.extend(addresses());
        }
        for port in subset.list_at("ports") {
            list.extend(addresses().map(|ip| join_host_port(&ip, port.integer_at("port"))));
        }
    }
    join_truncated(&list, 3, ",").into()
}

fn join_host_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Up to three hosts; every rule after the third host counts as one more.
pub(super) fn ingress_hosts_cell(row: &PrintedObject) -> Value {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for host in row.list_at("spec.rules").map(|rule| rule.string_at("host")) {
        more |= shown.len() == 3;
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".into(),
        (false, false) => shown.join(",").into(),
        (false, true) => format!("{} + {} more...", shown.join(","), row.count_at("spec.rules") - 3).into(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::table::printers;

    #[test]
    fn service_external_addresses_are_printed() {
        let check = |spec: Value, status: Value, want: [&str; 4]| {
            let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": status});
            let cells = printers::printer_for("", "Service")
                .row_cells(&PrintedObject { object: &object, now: Timestamp::UNIX_EPOCH });
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
