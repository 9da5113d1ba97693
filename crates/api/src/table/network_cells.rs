//! Cells of services, endpoints and ingresses.

use std::collections::BTreeSet;

use super::{cell_expression::join_truncated, printed_object::Row};
use crate::Value;

/// The external addresses of a service.
pub(super) fn external(row: &Row) -> Value {
    let given = row.list("spec.externalIPs").filter_map(|ip| ip.object.as_str().map(str::to_owned));
    let or = |all: Vec<String>, none: &str| if all.is_empty() { none.into() } else { all.join(",").into() };
    match row.text("spec.type") {
        "ClusterIP" | "NodePort" => or(given.collect(), "<none>"),
        "LoadBalancer" => or(of_balancers(row).into_iter().chain(given).collect(), "<pending>"),
        "ExternalName" => row.text("spec.externalName").into(),
        _ => "<unknown>".into(),
    }
}

/// Addresses or host names of load balancers, sorted.
fn of_balancers(row: &Row) -> BTreeSet<String> {
    let address =
        |entry: Row| Some(entry.text("ip")).filter(|ip| !ip.is_empty()).unwrap_or(entry.text("hostname")).to_owned();
    row.list("status.loadBalancer.ingress").map(address).filter(|text| !text.is_empty()).collect()
}

/// The load balancer addresses of an ingress.
pub(super) fn balancers(row: &Row) -> Value {
    of_balancers(row).into_iter().collect::<Vec<_>>().join(",").into()
}

/// Up to three addresses with ports.
pub(super) fn endpoints(row: &Row) -> Value {
    let mut list = Vec::new();
    for subset in row.list("subsets") {
        let addresses = || subset.list("addresses").map(|address| address.text("ip").to_owned());
        if subset.count("ports") == 0 {
            list.extend(addresses());
        }
        for port in subset.list("ports") {
            list.extend(addresses().map(|ip| join(&ip, port.number("port"))));
        }
    }
    join_truncated(&list, 3, ",").into()
}

fn join(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

/// Up to three hosts; every rule after the third host counts as one more.
pub(super) fn hosts(row: &Row) -> Value {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for host in row.list("spec.rules").map(|rule| rule.text("host")) {
        more |= shown.len() == 3;
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.is_empty(), more) {
        (true, _) => "*".into(),
        (false, false) => shown.join(",").into(),
        (false, true) => format!("{} + {} more...", shown.join(","), row.count("spec.rules") - 3).into(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::table::printers;

    #[test]
    fn services_say_where_they_are_reached() {
        let check = |spec: Value, status: Value, want: [&str; 4]| {
            let object = json!({"metadata": {"name": "s"}, "spec": spec, "status": status});
            let cells =
                printers::printer_for("", "Service").cells(&Row { object: &object, now: Timestamp::UNIX_EPOCH });
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
