//! The scheduler's predicates, checked once more where the pod is to run.

use client::{node_affinity::matches_node_affinity, tolerations::tolerates_taint};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint};

use super::{AdmissionRejection, HostPort, PodAdmission};
use crate::{resize::PendingResize, resources};

const OS_LABEL: &str = "kubernetes.io/os";
const WILDCARD_ADDRESS: &str = "0.0.0.0";

/// Checks OS, resources, node affinity, host ports and taints.
pub(super) fn check_predicates(
    admission: &PodAdmission,
    pod: &Pod,
    spec: &PodSpec,
    node: Option<&Node>,
) -> Result<(), AdmissionRejection> {
    check_os(pod, spec)?;
    check_resources(admission, spec)?;
    if node.is_some_and(|node| !matches_node_affinity(spec, node)) {
        return Err(predicate_failure("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    let taken = || admission.admitted.values().flat_map(|held| &held.host_ports);
    if host_ports(spec).any(|port| taken().any(|other| do_ports_conflict(&port, other))) {
        return Err(predicate_failure("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
    }
    let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let untolerated = |taint: &Taint| {
        taint.effect == "NoExecute" && !tolerations.iter().any(|toleration| tolerates_taint(toleration, taint))
    };
    if taints.iter().any(untolerated) {
        return Err(predicate_failure("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    Ok(())
}

fn predicate_failure(name: &str, description: &str) -> AdmissionRejection {
    AdmissionRejection::new(name, format!("Predicate {name} failed: {description}"))
}

fn check_os(pod: &Pod, spec: &PodSpec) -> Result<(), AdmissionRejection> {
    let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(OS_LABEL));
    if label.is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(AdmissionRejection::new("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(AdmissionRejection::new("PodOSNotSupported", message));
    }
    Ok(())
}

/// Checks the number of pods and every resource that the node has; others are not the kubelet's to count.
fn check_resources(admission: &PodAdmission, spec: &PodSpec) -> Result<(), AdmissionRejection> {
    let pods = admission.admitted.len() as i64;
    if pods + 1 > admission.allocatable.pods {
        return Err(insufficient("pods", 1, pods, admission.allocatable.pods));
    }
    for (name, requested) in resources::pod_requests(spec) {
        let Some(capacity) = admission.allocatable.amount(&name) else { continue };
        let held = admission.admitted.values().filter_map(|held| held.requests.get(&name));
        let used: i64 = held.sum();
        if requested > 0 && used.saturating_add(requested) > capacity {
            return Err(insufficient(&name, requested, used, capacity));
        }
    }
    Ok(())
}

/// Checks whether a pod that holds nothing else fits with new requests.
pub(super) fn check_resize(admission: &PodAdmission, spec: &PodSpec) -> Result<(), PendingResize> {
    for (name, requested) in resources::pod_requests(spec) {
        let capacity = admission.allocatable.amount(&name).unwrap_or(i64::MAX);
        if requested > capacity {
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}");
            return Err(PendingResize { reason: "Infeasible", message });
        }
    }
    let deferred = |rejection: AdmissionRejection| PendingResize { reason: "Deferred", message: rejection.message };
    check_resources(admission, spec).map_err(deferred)
}

fn insufficient(name: &str, requested: i64, used: i64, capacity: i64) -> AdmissionRejection {
    let message =
        format!("Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}");
    AdmissionRejection::new(format!("OutOf{name}"), message)
}

/// Returns the ports of the node that a pod uses.
pub(super) fn host_ports(spec: &PodSpec) -> impl Iterator<Item = HostPort> + '_ {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.flat_map(|container| container.ports.iter().flatten()).filter_map(|port| {
        let number = port.host_port.filter(|number| *number > 0)?;
        let address = port.host_ip.clone().filter(|address| !address.is_empty());
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".into());
        Some((protocol, address.unwrap_or_else(|| WILDCARD_ADDRESS.into()), number))
    })
}

/// Whether two pods cannot have these ports at once.
fn do_ports_conflict(a: &HostPort, b: &HostPort) -> bool {
    let overlap = a.1 == b.1 || [&a.1, &b.1].iter().any(|address| matches!(address.as_str(), WILDCARD_ADDRESS | "::"));
    a.0 == b.0 && a.2 == b.2 && overlap
}
