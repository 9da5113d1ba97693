//! Descriptions of nodes.

use api::{Value, quantity::Quantity};

use super::{
    DescribeContext,
    description::{Description, format_age, format_time, scalar_text},
};
use crate::object::{ObjectFields, name_of, namespace_of};

/// Describes a node.
pub fn describe_node(context: &DescribeContext, out: &mut Description, node: &Value) {
    out.field(0, "Name", name_of(node));
    out.field(0, "Roles", &roles(node));
    out.map(0, "Labels", node.map("metadata.labels"));
    out.annotations(0, "Annotations", node.map("metadata.annotations"));
    out.field(0, "CreationTimestamp", &format_time(node.text("metadata.creationTimestamp")));
    taints(out, node);
    out.field(0, "Unschedulable", &node.flag("spec.unschedulable").to_string());
    lease(context, out, node);
    conditions(out, node.list("status.conditions"));
    out.raw("Addresses:\n");
    for address in node.list("status.addresses") {
        out.raw(&format!("  {}:\t{}\n", address.text("type"), address.text("address")));
    }
    for (label, path) in [("Capacity", "status.capacity"), ("Allocatable", "status.allocatable")] {
        if let Some(map) = node.map(path) {
            out.raw(&format!("{label}:\n"));
            map.iter().for_each(|(name, amount)| out.raw(&format!("  {name}:\t{}\n", scalar_text(Some(amount)))));
        }
    }
    system_info(out, node);
    let cidrs: Vec<&str> = node.list("spec.podCIDRs").iter().filter_map(Value::as_str).collect();
    if !node.text("spec.podCIDR").is_empty() {
        out.field(0, "PodCIDR", node.text("spec.podCIDR"));
    }
    if !cidrs.is_empty() {
        out.field(0, "PodCIDRs", &cidrs.join(","));
    }
    if !node.text("spec.providerID").is_empty() {
        out.field(0, "ProviderID", node.text("spec.providerID"));
    }
    let selector = format!("spec.nodeName={},status.phase!=Failed,status.phase!=Succeeded", name_of(node));
    let pods = context.list_in_chunks("/api/v1/pods", "fieldSelector", &selector);
    node_pods(out, node, &pods);
    context.events(out, node);
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in node.map("metadata.labels").into_iter().flatten() {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/").filter(|role| !role.is_empty()) {
            roles.push(role);
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str());
        }
    }
    roles.sort_unstable();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn taints(out: &mut Description, node: &Value) {
    let mut taints: Vec<&Value> = node.list("spec.taints").iter().collect();
    taints.sort_by_key(|taint| (taint.text("effect"), taint.text("key")));
    let taints: Vec<String> = taints.into_iter().map(taint_text).collect();
    if taints.is_empty() {
        out.raw("Taints:\t<none>\n");
    }
    for (at, taint) in taints.iter().enumerate() {
        out.raw(&format!("{}\t{taint}\n", if at == 0 { "Taints:" } else { "" }));
    }
}

/// `key=value:effect`
pub fn taint_text(taint: &Value) -> String {
    let value = taint.text("value");
    let effect = taint.text("effect");
    let mut text = taint.text("key").to_owned();
    if !value.is_empty() {
        text += &format!("={value}");
    }
    if effect.is_empty() { text } else { format!("{text}:{effect}") }
}

fn lease(context: &DescribeContext, out: &mut Description, node: &Value) {
    match context.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{}", name_of(node))) {
        Err(error) => out.field(0, "Lease", &format!("Failed to get lease: {error}")),
        Ok(lease) => {
            out.raw("Lease:\n");
            let holder = lease.text("spec.holderIdentity");
            out.field(1, "HolderIdentity", if holder.is_empty() { "<unset>" } else { holder });
            let time = |path: &str| {
                if lease.text(path).is_empty() { "<unset>".to_owned() } else { format_time(lease.text(path)) }
            };
            out.field(1, "AcquireTime", &time("spec.acquireTime"));
            out.field(1, "RenewTime", &time("spec.renewTime"));
        }
    }
}

fn conditions(out: &mut Description, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    out.raw("Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n");
    out.raw("  ----\t------\t-----------------\t------------------\t------\t-------\n");
    for condition in conditions {
        out.raw(&format!(
            "  {} \t{} \t{} \t{} \t{} \t{}\n",
            condition.text("type"),
            condition.text("status"),
            format_time(condition.text("lastHeartbeatTime")),
            format_time(condition.text("lastTransitionTime")),
            condition.text("reason"),
            condition.text("message")
        ));
    }
}

fn system_info(out: &mut Description, node: &Value) {
    out.raw("System Info:\n");
    for (label, path) in [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
    ] {
        out.field(1, label, node.text(&format!("status.nodeInfo.{path}")));
    }
}

/// The sum of a resource over the containers of a pod; init containers count by their maximum.
fn pod_total(pod: &Value, kind: &str, resource: &str) -> Quantity {
    let amount = |container: &Value| {
        let value = container.at(&format!("resources.{kind}")).and_then(|list| list.get(resource));
        value.and_then(|value| Quantity::parse(&scalar_text(Some(value)))).unwrap_or_else(|| Quantity::from_integer(0))
    };
    let mut total = Quantity::from_integer(0);
    for container in pod.list("spec.containers") {
        total = total.plus(amount(container));
    }
    for container in pod.list("spec.initContainers") {
        let own = amount(container);
        if own.as_approximate_float() > total.as_approximate_float() {
            total = own;
        }
    }
    total
}

fn percentage(part: Quantity, whole: Option<Quantity>) -> i64 {
    let whole = whole.map_or(0, Quantity::millis);
    if whole == 0 { 0 } else { (part.millis() as f64 / whole as f64 * 100.0) as i64 }
}

fn node_pods(out: &mut Description, node: &Value, pods: &[Value]) {
    let allocatable = |name: &str| {
        let list = node.map("status.allocatable").filter(|map| !map.is_empty()).or(node.map("status.capacity"));
        list.and_then(|map| map.get(name)).and_then(|value| Quantity::parse(&scalar_text(Some(value))))
    };
    out.raw(&format!("Non-terminated Pods:\t({} in total)\n", pods.len()));
    out.raw("  Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge\n");
    out.raw("  ---------\t----\t\t------------\t----------\t---------------\t-------------\t---\n");
    for pod in pods {
        let cell = |kind: &str, resource: &str| {
            let total = pod_total(pod, kind, resource);
            format!("{total} ({}%)", percentage(total, allocatable(resource)))
        };
        out.raw(&format!(
            "  {}\t{}\t\t{}\t{}\t{}\t{}\t{}\n",
            namespace_of(pod),
            name_of(pod),
            cell("requests", "cpu"),
            cell("limits", "cpu"),
            cell("requests", "memory"),
            cell("limits", "memory"),
            format_age(pod.text("metadata.creationTimestamp"))
        ));
    }
    out.raw("Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)\n");
    out.raw("  Resource\tRequests\tLimits\n  --------\t--------\t------\n");
    let mut names = vec!["cpu".to_owned(), "memory".to_owned(), "ephemeral-storage".to_owned()];
    names.extend(
        node.map("status.allocatable")
            .into_iter()
            .flat_map(|map| map.keys())
            .filter(|name| name.starts_with("hugepages-") || name.contains('/'))
            .cloned(),
    );
    for name in names {
        let sum =
            |kind: &str| pods.iter().fold(Quantity::from_integer(0), |sum, pod| sum.plus(pod_total(pod, kind, &name)));
        let (requests, limits) = (sum("requests"), sum("limits"));
        if name.contains('/') {
            out.raw(&format!("  {name}\t{requests}\t{limits}\n"));
        } else {
            let whole = allocatable(&name);
            out.raw(&format!(
                "  {name}\t{requests} ({}%)\t{limits} ({}%)\n",
                percentage(requests, whole),
                percentage(limits, whole)
            ));
        }
    }
}
