//! Descriptions of pods.

use api::Value;

use super::{
    DescribeContext,
    container::describe_containers,
    description::{Description, format_time},
    template::{selectors, topology_spread},
    volume::describe_volumes,
};
use crate::object::ObjectFields;

/// Describes a pod.
pub fn describe_pod(context: &DescribeContext, out: &mut Description, pod: &Value) {
    out.field(0, "Name", pod.text("metadata.name"));
    out.field(0, "Namespace", pod.text("metadata.namespace"));
    if let Some(priority) = pod.integer("spec.priority") {
        out.field(0, "Priority", &priority.to_string());
    }
    for (label, path) in [
        ("Priority Class Name", "spec.priorityClassName"),
        ("Runtime Class Name", "spec.runtimeClassName"),
        ("Service Account", "spec.serviceAccountName"),
    ] {
        if !pod.text(path).is_empty() {
            out.field(0, label, pod.text(path));
        }
    }
    let node = pod.text("spec.nodeName");
    out.field(
        0,
        "Node",
        &if node.is_empty() { "<none>".to_owned() } else { format!("{node}/{}", pod.text("status.hostIP")) },
    );
    if !pod.text("status.startTime").is_empty() {
        out.field(0, "Start Time", &format_time(pod.text("status.startTime")));
    }
    out.map(0, "Labels", pod.map("metadata.labels"));
    out.annotations(0, "Annotations", pod.map("metadata.annotations"));
    status_lines(out, pod);
    if let Some(owner) = controller_text(pod) {
        out.field(0, "Controlled By", &owner);
    }
    if !pod.text("status.nominatedNodeName").is_empty() {
        out.field(0, "NominatedNodeName", pod.text("status.nominatedNodeName"));
    }
    let init = pod.list("spec.initContainers");
    if !init.is_empty() {
        describe_containers(out, "Init Containers", init, pod.list("status.initContainerStatuses"), Some(pod), "");
    }
    describe_containers(
        out,
        "Containers",
        pod.list("spec.containers"),
        pod.list("status.containerStatuses"),
        Some(pod),
        "",
    );
    let ephemeral = pod.list("spec.ephemeralContainers");
    if !ephemeral.is_empty() {
        describe_containers(
            out,
            "Ephemeral Containers",
            ephemeral,
            pod.list("status.ephemeralContainerStatuses"),
            Some(pod),
            "",
        );
    }
    readiness_gates(out, pod);
    conditions(out, pod);
    describe_volumes(out, pod.list("spec.volumes"), "");
    let qos = pod.text("status.qosClass");
    let qos = if qos.is_empty() { api::qos::pod_qos_class(pod).to_owned() } else { qos.to_owned() };
    out.field(0, "QoS Class", &qos);
    selectors(out, pod.at("spec"), "");
    topology_spread(out, pod.list("spec.topologySpreadConstraints"), "");
    context.events(out, pod);
}

fn status_lines(out: &mut Description, pod: &Value) {
    let deletion = pod.text("metadata.deletionTimestamp");
    let phase = pod.text("status.phase");
    if !deletion.is_empty() && phase != "Failed" && phase != "Succeeded" {
        out.field(0, "Status", &format!("Terminating (lasts {})", super::description::format_age(deletion)));
        out.field(
            0,
            "Termination Grace Period",
            &format!("{}s", pod.integer("metadata.deletionGracePeriodSeconds").unwrap_or(0)),
        );
    } else {
        out.field(0, "Status", phase);
    }
    for (label, path) in [("Reason", "status.reason"), ("Message", "status.message")] {
        if !pod.text(path).is_empty() {
            out.field(0, label, pod.text(path));
        }
    }
    let seccomp = pod.text("spec.securityContext.seccompProfile.type");
    if !seccomp.is_empty() {
        out.field(0, "SeccompProfile", seccomp);
        if seccomp == "Localhost" {
            out.field(0, "LocalhostProfile", pod.text("spec.securityContext.seccompProfile.localhostProfile"));
        }
    }
    out.field(0, "IP", pod.text("status.podIP"));
    let addresses = pod.list("status.podIPs");
    if addresses.is_empty() {
        out.raw("IPs:\t<none>\n");
    } else {
        out.raw("IPs:\n");
        addresses.iter().for_each(|address| out.field(1, "IP", address.text("ip")));
    }
}

/// `Kind/name` of the controller.
pub fn controller_text(object: &Value) -> Option<String> {
    let owner = object.list("metadata.ownerReferences").iter().find(|owner| owner.flag("controller"))?;
    Some(format!("{}/{}", owner.text("kind"), owner.text("name")))
}

fn readiness_gates(out: &mut Description, pod: &Value) {
    let gates = pod.list("spec.readinessGates");
    if gates.is_empty() {
        return;
    }
    out.raw("Readiness Gates:\n  Type\tStatus\n");
    for gate in gates {
        let name = gate.text("conditionType");
        let condition = pod.list("status.conditions").iter().find(|condition| condition.text("type") == name);
        let status = condition.map_or("<none>", |condition| condition.text("status"));
        out.raw(&format!("  {name} \t{status} \n"));
    }
}

fn conditions(out: &mut Description, pod: &Value) {
    let conditions = pod.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    out.raw("Conditions:\n");
    let observed = conditions.iter().any(|condition| condition.integer("observedGeneration").is_some());
    let _ = observed;
    out.raw("  Type\tStatus\n");
    for condition in conditions {
        out.raw(&format!("  {} \t{} \n", condition.text("type"), condition.text("status")));
    }
}
