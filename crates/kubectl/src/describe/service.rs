//! Descriptions of services.

use api::Value;

use super::{
    DescribeContext,
    description::{Description, join_or_none, scalar_text},
};
use crate::object::{ObjectFields, name_of, namespace_of};

/// Describes a service.
pub fn describe_service(context: &DescribeContext, out: &mut Description, service: &Value) {
    out.metadata(service, true);
    let pairs: Vec<String> = service
        .map("spec.selector")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    out.field(0, "Selector", &if pairs.is_empty() { "<none>".to_owned() } else { pairs.join(",") });
    out.field(0, "Type", service.text("spec.type"));
    if !service.text("spec.ipFamilyPolicy").is_empty() {
        out.field(0, "IP Family Policy", service.text("spec.ipFamilyPolicy"));
    }
    out.field(0, "IP Families", &join_or_none(service.list("spec.ipFamilies"), ","));
    out.field(0, "IP", service.text("spec.clusterIP"));
    out.field(0, "IPs", &join_or_none(service.list("spec.clusterIPs"), ","));
    if !service.list("spec.externalIPs").is_empty() {
        out.field(0, "External IPs", &join_or_none(service.list("spec.externalIPs"), ","));
    }
    for (label, path) in [("Desired LoadBalancer IP", "spec.loadBalancerIP"), ("External Name", "spec.externalName")] {
        if !service.text(path).is_empty() {
            out.field(0, label, service.text(path));
        }
    }
    let ingress = service.list("status.loadBalancer.ingress");
    if !ingress.is_empty() {
        let texts: Vec<String> = ingress.iter().map(ingress_text).collect();
        out.field(0, "LoadBalancer Ingress", &texts.join(", "));
    }
    let slices = context.list(
        &format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", namespace_of(service)),
        &format!("kubernetes.io/service-name={}", name_of(service)),
    );
    for port in service.list("spec.ports") {
        service_port(out, port, &slices);
    }
    out.field(0, "Session Affinity", service.text("spec.sessionAffinity"));
    for (label, path) in [
        ("External Traffic Policy", "spec.externalTrafficPolicy"),
        ("Internal Traffic Policy", "spec.internalTrafficPolicy"),
        ("Traffic Distribution", "spec.trafficDistribution"),
    ] {
        if !service.text(path).is_empty() {
            out.field(0, label, service.text(path));
        }
    }
    if let Some(port) = service.integer("spec.healthCheckNodePort").filter(|port| *port != 0) {
        out.field(0, "HealthCheck NodePort", &port.to_string());
    }
    if !service.list("spec.loadBalancerSourceRanges").is_empty() {
        out.field(0, "LoadBalancer Source Ranges", &join_or_none(service.list("spec.loadBalancerSourceRanges"), ","));
    }
    context.events(out, service);
}

fn ingress_text(entry: &Value) -> String {
    let (address, host, mode) = (entry.text("ip"), entry.text("hostname"), entry.text("ipMode"));
    if address.is_empty() {
        return host.to_owned();
    }
    if mode.is_empty() { address.to_owned() } else { format!("{address} ({mode})") }
}

fn service_port(out: &mut Description, port: &Value, slices: &[Value]) {
    let name = if port.text("name").is_empty() { "<unset>" } else { port.text("name") };
    let protocol = port.text("protocol");
    out.raw(&format!("Port:\t{name}\t{}/{protocol}\n", port.integer("port").unwrap_or(0)));
    out.raw(&format!("TargetPort:\t{}/{protocol}\n", scalar_text(port.at("targetPort"))));
    if let Some(node_port) = port.integer("nodePort").filter(|number| *number != 0) {
        out.raw(&format!("NodePort:\t{name}\t{node_port}/{protocol}\n"));
    }
    out.raw(&format!("Endpoints:\t{}\n", slice_endpoints(slices, port.text("name"))));
}

/// The first addresses of a port in endpoint slices.
pub fn slice_endpoints(slices: &[Value], name: &str) -> String {
    if slices.is_empty() {
        return "<none>".to_owned();
    }
    let mut texts = Vec::new();
    for slice in slices {
        let ports: Vec<&Value> = slice.list("ports").iter().filter(|port| port.text("name") == name).collect();
        for port in ports {
            for endpoint in slice.list("endpoints") {
                let ready = endpoint.at("conditions.ready").is_none_or(|ready| ready == &Value::Bool(true));
                if !ready {
                    continue;
                }
                for address in endpoint.list("addresses").iter().filter_map(Value::as_str) {
                    let number = port.integer("port").unwrap_or(0);
                    texts.push(if address.contains(':') {
                        format!("[{address}]:{number}")
                    } else {
                        format!("{address}:{number}")
                    });
                }
            }
        }
    }
    let shown = texts.iter().take(3).cloned().collect::<Vec<_>>().join(",");
    if texts.len() > 3 { format!("{shown} + {} more...", texts.len() - 3) } else { shown }
}
