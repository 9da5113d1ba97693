//! Descriptions of ingresses, network policies, endpoints and endpoint slices.

use api::Value;

use super::{
    DescribeContext,
    description::{Description, join_or_none, scalar_text},
    service::slice_endpoints,
};
use crate::object::{ObjectFields, name_of, namespace_of};

/// Ingresses.
pub fn ingress(context: &DescribeContext, out: &mut Description, ingress: &Value) {
    out.field(0, "Name", name_of(ingress));
    out.map(0, "Labels", ingress.map("metadata.labels"));
    out.field(0, "Namespace", namespace_of(ingress));
    let addresses: Vec<&str> = ingress
        .list("status.loadBalancer.ingress")
        .iter()
        .map(|entry| if entry.text("ip").is_empty() { entry.text("hostname") } else { entry.text("ip") })
        .collect();
    out.field(0, "Address", &addresses.join(","));
    let class = ingress.text("spec.ingressClassName");
    out.field(0, "Ingress Class", if class.is_empty() { "<none>" } else { class });
    let default = ingress.at("spec.defaultBackend");
    out.field(
        0,
        "Default backend",
        &default.map_or("<default>".to_owned(), |backend| backend_text(context, ingress, backend)),
    );
    if !ingress.list("spec.tls").is_empty() {
        out.raw("TLS:\n");
        for tls in ingress.list("spec.tls") {
            let (secret, hosts) = (tls.text("secretName"), join_or_none(tls.list("hosts"), ","));
            let hosts = if hosts == "<none>" { String::new() } else { hosts };
            match secret {
                "" => out.raw(&format!("  SNI routes {hosts}\n")),
                secret => out.raw(&format!("  {secret} terminates {hosts}\n")),
            }
        }
    }
    out.raw("Rules:\n  Host\tPath\tBackends\n  ----\t----\t--------\n");
    let mut count = 0;
    for rule in ingress.list("spec.rules") {
        let paths = rule.list("http.paths");
        if rule.at("http").is_none() {
            continue;
        }
        count += 1;
        let host = if rule.text("host").is_empty() { "*" } else { rule.text("host") };
        out.raw(&format!("  {host}\t\n"));
        for path in paths {
            let backend = path.at("backend").map(|backend| backend_text(context, ingress, backend)).unwrap_or_default();
            out.raw(&format!("    \t{} \t{backend}\n", path.text("path")));
        }
    }
    if count == 0 {
        let backend = default.map_or("<default>".to_owned(), |backend| backend_text(context, ingress, backend));
        out.raw(&format!("  *\t*\t{backend}\n"));
    }
    out.annotations(0, "Annotations", ingress.map("metadata.annotations"));
    context.events(out, ingress);
}

fn backend_text(context: &DescribeContext, ingress: &Value, backend: &Value) -> String {
    if let Some(service) = backend.at("service") {
        let port = service
            .integer("port.number")
            .map_or_else(|| service.text("port.name").to_owned(), |number| number.to_string());
        let name = service.text("name");
        return format!("{name}:{port} ({})", backend_endpoints(context, ingress, name, service));
    }
    if let Some(resource) = backend.at("resource") {
        let group = if resource.text("apiGroup").is_empty() { "<none>" } else { resource.text("apiGroup") };
        return format!("APIGroup: {group}, Kind: {}, Name: {}", resource.text("kind"), resource.text("name"));
    }
    String::new()
}

fn backend_endpoints(context: &DescribeContext, ingress: &Value, name: &str, backend: &Value) -> String {
    let namespace = namespace_of(ingress);
    let service = match context.get(&format!("/api/v1/namespaces/{namespace}/services/{name}")) {
        Ok(service) => service,
        Err(error) => return format!("<error: {error}>"),
    };
    let (number, port_name) = (backend.integer("port.number"), backend.text("port.name"));
    let port = service.list("spec.ports").iter().find(|port| {
        port.integer("port") == number && number.is_some() || !port_name.is_empty() && port.text("name") == port_name
    });
    let slices = context.list(
        &format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
        &format!("kubernetes.io/service-name={name}"),
    );
    slice_endpoints(&slices, port.map(|port| port.text("name")).unwrap_or_default())
}

/// IngressClasses.
pub fn ingress_class(context: &DescribeContext, out: &mut Description, class: &Value) {
    out.metadata(class, false);
    out.field(0, "Controller", class.text("spec.controller"));
    if let Some(parameters) = class.at("spec.parameters") {
        out.raw("Parameters:\n");
        if !parameters.text("apiGroup").is_empty() {
            out.field(1, "APIGroup", parameters.text("apiGroup"));
        }
        out.field(1, "Kind", parameters.text("kind"));
        out.field(1, "Name", parameters.text("name"));
    }
    context.events(out, class);
}

/// Endpoints.
pub fn endpoints(context: &DescribeContext, out: &mut Description, endpoints: &Value) {
    out.metadata(endpoints, true);
    out.raw("Subsets:\n");
    for subset in endpoints.list("subsets") {
        for (label, path) in [("Addresses", "addresses"), ("NotReadyAddresses", "notReadyAddresses")] {
            let addresses: Vec<&str> = subset.list(path).iter().map(|address| address.text("ip")).collect();
            out.field(1, label, &if addresses.is_empty() { "<none>".to_owned() } else { addresses.join(",") });
        }
        if !subset.list("ports").is_empty() {
            out.raw("  Ports:\n    Name\tPort\tProtocol\n    ----\t----\t--------\n");
            for port in subset.list("ports") {
                let name = if port.text("name").is_empty() { "<unset>" } else { port.text("name") };
                out.raw(&format!("    {name}\t{}\t{}\n", port.integer("port").unwrap_or(0), port.text("protocol")));
            }
        }
        out.raw("\n");
    }
    context.events(out, endpoints);
}

/// EndpointSlices.
pub fn endpoint_slice(context: &DescribeContext, out: &mut Description, slice: &Value) {
    out.metadata(slice, true);
    out.field(0, "AddressType", slice.text("addressType"));
    if slice.list("ports").is_empty() {
        out.raw("Ports: <unset>\n");
    } else {
        out.raw("Ports:\n  Name\tPort\tProtocol\n  ----\t----\t--------\n");
        for port in slice.list("ports") {
            let name = if port.text("name").is_empty() { "<unset>" } else { port.text("name") };
            let number = port.integer("port").map_or("<unset>".to_owned(), |port| port.to_string());
            out.raw(&format!("  {name}\t{number}\t{}\n", port.text("protocol")));
        }
    }
    if slice.list("endpoints").is_empty() {
        out.raw("Endpoints: <none>\n");
    } else {
        out.raw("Endpoints:\n");
    }
    for endpoint in slice.list("endpoints") {
        out.raw(&format!("  - Addresses:\t{}\n    Conditions:\n", join_or_none(endpoint.list("addresses"), ", ")));
        let ready = endpoint
            .at("conditions.ready")
            .and_then(Value::as_bool)
            .map_or("<unset>".to_owned(), |ready| ready.to_string());
        out.raw(&format!("      Ready:\t{ready}\n"));
        let unset = |text: &str| if text.is_empty() { "<unset>".to_owned() } else { text.to_owned() };
        out.raw(&format!("    Hostname:\t{}\n", unset(endpoint.text("hostname"))));
        if let Some(target) = endpoint.at("targetRef") {
            out.raw(&format!("    TargetRef:\t{}/{}\n", target.text("kind"), target.text("name")));
        }
        out.raw(&format!(
            "    NodeName:\t{}\n    Zone:\t{}\n",
            unset(endpoint.text("nodeName")),
            unset(endpoint.text("zone"))
        ));
    }
    context.events(out, slice);
}

/// NetworkPolicies.
pub fn network_policy(out: &mut Description, policy: &Value) {
    out.field(0, "Name", name_of(policy));
    out.field(0, "Namespace", namespace_of(policy));
    let created = api::time::parse(policy.text("metadata.creationTimestamp"));
    let created = created.map(|time| time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()).unwrap_or_default();
    out.field(0, "Created on", &created);
    out.map(0, "Labels", policy.map("metadata.labels"));
    out.annotations(0, "Annotations", policy.map("metadata.annotations"));
    out.raw("Spec:\n");
    let selector = policy.at("spec.podSelector").map(api::selector::format_label_selector).unwrap_or_default();
    let all = selector.is_empty() || selector == "<none>";
    out.raw("  PodSelector: ");
    out.raw(&if all {
        "    <none> (Allowing the specific traffic to all pods in this namespace)\n".to_owned()
    } else {
        format!("    {selector}\n")
    });
    let types: Vec<&str> = policy.list("spec.policyTypes").iter().filter_map(Value::as_str).collect();
    for (kind, from) in [("ingress", "From"), ("egress", "To")] {
        let capital = if kind == "ingress" { "Ingress" } else { "Egress" };
        if !types.contains(&capital) {
            out.raw(&format!("  Not affecting {kind} traffic\n"));
            continue;
        }
        out.raw(&format!("  Allowing {kind} traffic:\n"));
        policy_rules(out, policy.list(&format!("spec.{kind}")), kind, from);
    }
    out.raw(&format!("  Policy Types: {}\n", types.join(", ")));
}

fn policy_rules(out: &mut Description, rules: &[Value], kind: &str, direction: &str) {
    if rules.is_empty() {
        out.raw(&format!("    <none> (Selected pods are isolated for {kind} connectivity)\n"));
    }
    for (at, rule) in rules.iter().enumerate() {
        let ports = rule.list("ports");
        if ports.is_empty() {
            out.raw("    To Port: <any> (traffic allowed to all ports)\n");
        }
        for port in ports {
            let protocol = if port.text("protocol").is_empty() { "TCP" } else { port.text("protocol") };
            let number = scalar_text(port.at("port"));
            match port.integer("endPort") {
                Some(end) => out.raw(&format!("    To Port Range: {number}-{end}/{protocol}\n")),
                None => out.raw(&format!("    To Port: {number}/{protocol}\n")),
            }
        }
        let peers = rule.list(if direction == "From" { "from" } else { "to" });
        if peers.is_empty() {
            let what = if direction == "From" { "source" } else { "destination" };
            out.raw(&format!("    {direction}: <any> (traffic not restricted by {what})\n"));
        }
        peers.iter().for_each(|peer| policy_peer(out, peer, direction));
        if at + 1 < rules.len() {
            out.raw("    ----------\n");
        }
    }
}

fn policy_peer(out: &mut Description, peer: &Value, direction: &str) {
    out.raw(&format!("    {direction}:\n"));
    for (field, label) in [("namespaceSelector", "NamespaceSelector"), ("podSelector", "PodSelector")] {
        if let Some(selector) = peer.at(field) {
            let text = api::selector::format_label_selector(selector);
            out.raw(&format!("      {label}: {}\n", if text.is_empty() { "<none>" } else { &text }));
        }
    }
    if let Some(block) = peer.at("ipBlock") {
        out.raw(&format!("      IPBlock:\n        CIDR: {}\n", block.text("cidr")));
        let except: Vec<&str> = block.list("except").iter().filter_map(Value::as_str).collect();
        out.raw(&format!("        Except: {}\n", except.join(", ")));
    }
}
