//! Nodes: a kubelet may change its own, except its taints, owner references and restricted labels.

use std::collections::BTreeSet;

use api::{Value, meta, status::Status};

use super::NodeRequest;
use crate::Operation;

/// Labels of the `kubernetes.io` and `k8s.io` namespaces that a kubelet may set.
const KUBELET_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Label prefixes of these namespaces that a kubelet may set.
const KUBELET_LABEL_PREFIXES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];
/// The label prefix that kubelets may not set.
const RESTRICTED_LABEL_PREFIX: &str = "node-restriction.kubernetes.io";

/// Checks a write to a node.
pub fn check_node(request: &NodeRequest<'_>) -> Result<(), Status> {
    let (node, object) = (request.node, request.object);
    let name = request.attributes.object_name(object);
    if name != node {
        return request.deny(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    match (request.attributes.operation, request.attributes.old) {
        (Operation::Create, _) => {
            if meta::value_at(object, &["spec", "configSource"]).is_some() {
                let why = format!("node {node:?} is not allowed to create pods with a non-nil configSource");
                return request.deny(why);
            }
            match forbidden_labels(object, &Value::Null).as_str() {
                "" => Ok(()),
                labels => request.deny(format!("node {node:?} is not allowed to set the following labels: {labels}")),
            }
        }
        (Operation::Update, Some(old)) => check_node_update(request, old),
        _ => Ok(()),
    }
}

fn check_node_update(request: &NodeRequest<'_>, old: &Value) -> Result<(), Status> {
    let (node, object) = (request.node, request.object);
    let changes = |path: &[&str]| meta::value_at(object, path) != meta::value_at(old, path);
    if meta::value_at(object, &["spec", "configSource"]).is_some() && changes(&["spec", "configSource"]) {
        let why = format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
        return request.deny(why);
    }
    if meta::list_at(object, &["spec", "taints"]) != meta::list_at(old, &["spec", "taints"]) {
        return request.deny(format!("node {node:?} is not allowed to modify taints"));
    }
    if meta::list_at(object, &["metadata", "ownerReferences"]) != meta::list_at(old, &["metadata", "ownerReferences"]) {
        return request.deny(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    match forbidden_labels(object, old).as_str() {
        "" => Ok(()),
        labels => request.deny(format!("is not allowed to modify labels: {labels}")),
    }
}

/// Lists the changed labels that a kubelet may not set, sorted.
fn forbidden_labels(object: &Value, old: &Value) -> String {
    let label = |object: &Value, key: &str| meta::value_at(object, &["metadata", "labels", key]).cloned();
    let keys =
        [object, old].into_iter().filter_map(|object| meta::value_at(object, &["metadata", "labels"])?.as_object());
    let keys: BTreeSet<&String> = keys.flat_map(|labels| labels.keys()).collect();
    let changed = keys.into_iter().filter(|key| label(object, key) != label(old, key));
    changed.filter(|key| is_forbidden_label(key)).cloned().collect::<Vec<_>>().join(", ")
}

fn is_forbidden_label(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let within = |other: &str| domain == other || domain.strip_suffix(other).is_some_and(|rest| rest.ends_with('.'));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let own = KUBELET_LABELS.contains(&label) || KUBELET_LABEL_PREFIXES.iter().any(|own| within(own));
    within(RESTRICTED_LABEL_PREFIX) || kubernetes && !own
}
