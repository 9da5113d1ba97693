//! Matching of pods' node selectors and required node affinity, by the rules that the controllers and the kubelet share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Whether a node has what a pod's `nodeSelector` and required node affinity ask for.
pub fn matches_node_affinity(spec: &PodSpec, node: &Node) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&NONE);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let terms = required_node_selector(spec).map(|selector| &selector.node_selector_terms);
    selected && terms.is_none_or(|terms| terms.iter().any(|term| matches_term(term, node, labels)))
}

/// Returns the pod's required node affinity.
pub fn required_node_selector(spec: &PodSpec) -> Option<&NodeSelector> {
    spec.affinity.as_ref()?.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
}

/// Whether all requirements of a term match; an empty term matches nothing.
fn matches_term(term: &NodeSelectorTerm, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or(&[]);
    let fields = term.match_fields.as_deref().unwrap_or(&[]);
    let field = |key: &str| node.metadata.name.as_deref().filter(|_| key == "metadata.name").unwrap_or("");
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|expression| matches_label(expression, labels.get(&expression.key)))
        && fields.iter().all(|requirement| matches_field(requirement, field(&requirement.key)))
}

fn matches_label(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or(&[]);
    let is_listed = value.is_some_and(|value| values.contains(value));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
            let both = number(value).zip(number(values.first()));
            both.is_some_and(|(number, bound)| if operator == "Gt" { number > bound } else { number < bound })
        }
        _ => false,
    }
}

/// Whether a field has the one value of a requirement, or has not.
fn matches_field(requirement: &NodeSelectorRequirement, value: &str) -> bool {
    match (requirement.operator.as_str(), requirement.values.as_deref()) {
        ("In", Some([wanted])) => wanted == value,
        ("NotIn", Some([unwanted])) => unwanted != value,
        _ => false,
    }
}
