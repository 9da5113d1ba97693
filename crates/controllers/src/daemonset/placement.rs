//! Placement of daemon pods: which nodes run one, and how a pod is tied to its node.

use client::{node_affinity::matches_node_affinity, tolerations::tolerates_taint};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{
        Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint,
        Toleration,
    },
};

use crate::pod_view::PodView;

/// Whether a node runs a pod of a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodePlacement {
    /// A pod is created if there is none.
    Run,
    /// A pod that runs stays, but none is created.
    KeepRunning,
    /// Pods are deleted.
    Exclude,
}

/// Decides by the template's node name, node selector, required node affinity and tolerations.
pub(super) fn node_placement(set: &DaemonSet, node: &Node) -> NodePlacement {
    let Some(spec) = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else {
        return NodePlacement::Exclude;
    };
    let name = node.metadata.name.as_deref().unwrap_or("");
    let fits_name = spec.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name);
    if !fits_name || !matches_node_affinity(spec, node) {
        return NodePlacement::Exclude;
    }
    let tolerations = daemon_tolerations(spec);
    let is_untolerated = |taint: &&Taint| !tolerations.iter().any(|toleration| tolerates_taint(toleration, taint));
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or(&[]);
    let untolerated: Vec<&Taint> = taints.iter().filter(is_untolerated).collect();
    if untolerated.iter().any(|taint| taint.effect == "NoExecute") {
        NodePlacement::Exclude
    } else if untolerated.iter().any(|taint| taint.effect == "NoSchedule") {
        NodePlacement::KeepRunning
    } else {
        NodePlacement::Run
    }
}

/// Returns the template's tolerations with those that every daemon pod has.
pub(super) fn daemon_tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    let standard = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    let network = spec.host_network == Some(true);
    let network = network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in standard.into_iter().chain(network) {
        let toleration = Toleration {
            key: Some(key.into()),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Default::default()
        };
        add_toleration(&mut tolerations, toleration);
    }
    tolerations
}

/// Adds a toleration in place of those with its key, effect, operator and value, which differ in `tolerationSeconds`.
fn add_toleration(tolerations: &mut Vec<Toleration>, toleration: Toleration) {
    let identity = |toleration: &Toleration| {
        let parts = [&toleration.key, &toleration.effect, &toleration.operator, &toleration.value];
        parts.map(|part| part.clone().unwrap_or_default())
    };
    let mut replaced = false;
    for other in tolerations.iter_mut().filter(|other| identity(other) == identity(&toleration)) {
        (*other, replaced) = (toleration.clone(), true);
    }
    if !replaced {
        tolerations.push(toleration);
    }
}

/// Ties a pod to a node by its required node affinity, in place of the template's.
pub(super) fn assign_node(affinity: Option<Affinity>, node: &str) -> Affinity {
    let requirement =
        NodeSelectorRequirement { key: "metadata.name".into(), operator: "In".into(), values: Some(vec![node.into()]) };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
    let mut affinity = affinity.unwrap_or_default();
    let node_affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    node_affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    affinity
}

/// Returns the node that a pod runs on or is tied to.
pub(super) fn target_node(pod: &PodView) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required.node_selector_terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let requirement = { fields }.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match requirement.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(pod: Value, node: Value, expected: NodePlacement) {
        let set = json!({"spec": {"selector": {}, "template": {"spec": pod}}});
        let set: DaemonSet = serde_json::from_value(set).unwrap();
        assert_eq!(node_placement(&set, &serde_json::from_value(node.clone()).unwrap()), expected, "{pod} {node}");
    }

    fn node(taints: Value) -> Value {
        json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}, "spec": {"taints": taints}})
    }

    #[test]
    fn selectors_choose_nodes() {
        let plain = || node(json!([]));
        let requires = |terms: Value| {
            json!({"containers": [], "affinity": {"nodeAffinity":
                {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
        };
        check(json!({"containers": []}), plain(), NodePlacement::Run);
        check(json!({"containers": [], "nodeName": "n1"}), plain(), NodePlacement::Run);
        check(json!({"containers": [], "nodeName": "n2"}), plain(), NodePlacement::Exclude);
        check(json!({"containers": [], "nodeSelector": {"zone": "b"}}), plain(), NodePlacement::Exclude);
        check(requires(json!([{}])), plain(), NodePlacement::Exclude);
        let cores = |operator: &str, value: &str| json!([{"matchExpressions": [{"key": "cores", "operator": operator, "values": [value]}]}]);
        check(requires(cores("Gt", "4")), plain(), NodePlacement::Run);
        check(requires(cores("Lt", "4")), plain(), NodePlacement::Exclude);
        check(requires(cores("NotIn", "8")), plain(), NodePlacement::Exclude);
        check(
            requires(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}])),
            plain(),
            NodePlacement::Run,
        );
        check(
            requires(json!([{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}])),
            plain(),
            NodePlacement::Exclude,
        );
    }

    #[test]
    fn taints_exclude_nodes() {
        let pod = || json!({"containers": []});
        let taint = |key: &str, effect: &str| node(json!([{"key": key, "effect": effect}]));
        check(pod(), taint("x", "NoSchedule"), NodePlacement::KeepRunning);
        check(pod(), taint("x", "NoExecute"), NodePlacement::Exclude);
        check(pod(), taint("x", "PreferNoSchedule"), NodePlacement::Run);
        check(pod(), taint("node.kubernetes.io/unschedulable", "NoSchedule"), NodePlacement::Run);
        check(pod(), taint("node.kubernetes.io/not-ready", "NoExecute"), NodePlacement::Run);
        check(pod(), taint("node.kubernetes.io/not-ready", "NoSchedule"), NodePlacement::KeepRunning);
        check(pod(), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), NodePlacement::KeepRunning);
        let host = json!({"containers": [], "hostNetwork": true});
        check(host, taint("node.kubernetes.io/network-unavailable", "NoSchedule"), NodePlacement::Run);
        let tolerant = json!({"containers": [], "tolerations": [{"key": "x", "value": "1", "effect": "NoExecute"}]});
        check(tolerant.clone(), node(json!([{"key": "x", "value": "1", "effect": "NoExecute"}])), NodePlacement::Run);
        check(tolerant, node(json!([{"key": "x", "value": "2", "effect": "NoExecute"}])), NodePlacement::Exclude);
    }

    #[test]
    fn standard_tolerations_replace_limited_ones() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [], "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}))
        .unwrap();
        let tolerations = daemon_tolerations(&spec);
        assert_eq!((tolerations.len(), tolerations[0].toleration_seconds), (6, None));
    }

    #[test]
    fn pod_is_tied_to_its_node() {
        let preferred = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [],
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}});
        let affinity = assign_node(serde_json::from_value(preferred).unwrap(), "n1");
        let mut pod: PodView = serde_json::from_value(json!({"spec": {"affinity": affinity}})).unwrap();
        assert_eq!(target_node(&pod), Some("n1"));
        pod.spec.as_mut().unwrap().node_name = Some("n2".into());
        assert_eq!(target_node(&pod), Some("n2"));
        assert_eq!(target_node(&PodView::default()), None);
    }
}
