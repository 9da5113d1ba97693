//! NodeAffinity: filters by node selector and required terms, scores preferred terms.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeAffinity as Affinity, NodeSelectorRequirement, NodeSelectorTerm, Pod};
use kube::ResourceExt;

use super::{SchedulerPlugin, ScoreNormalization};
use crate::cache::{NodeInfo, PodInfo};

pub(super) struct NodeAffinity;

impl SchedulerPlugin for NodeAffinity {
    fn filter_node(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Vec<String>> {
        match matches_node_selector(&pod.pod, node) && matches_required_terms(&pod.pod, node) {
            true => Ok(()),
            false => Err(vec!["node(s) didn't match Pod's node affinity/selector".into()]),
        }
    }

    fn score_node(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let preferred =
            node_affinity(&pod.pod).and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref());
        let matching = preferred.into_iter().flatten().filter(|term| term_matches(&term.preference, node));
        matching.map(|term| i64::from(term.weight)).sum()
    }

    fn score_normalization(&self) -> ScoreNormalization {
        ScoreNormalization::Proportional
    }

    fn score_weight(&self) -> i64 {
        2
    }
}

fn node_affinity(pod: &Pod) -> Option<&Affinity> {
    pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()
}

fn matches_node_selector(pod: &Pod, node: &NodeInfo) -> bool {
    let labels = node_labels(node);
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether one of the required terms matches, if there are any.
fn matches_required_terms(pod: &Pod, node: &NodeInfo) -> bool {
    let required = node_affinity(pod).and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|selector| selector.node_selector_terms.iter().any(|term| term_matches(term, node)))
}

/// Whether all requirements of a term match; an empty term matches nothing.
fn term_matches(term: &NodeSelectorTerm, node: &NodeInfo) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or(&[]);
    let fields = term.match_fields.as_deref().unwrap_or(&[]);
    let labels = node_labels(node);
    let name = node.node.as_ref().map(|node| node.name_any());
    let field = |name_of: &str| name.as_deref().filter(|_| name_of == "metadata.name");
    !(expressions.is_empty() && fields.is_empty())
        && expressions
            .iter()
            .all(|requirement| requirement_matches(requirement, labels.get(&requirement.key).map(String::as_str)))
        && fields.iter().all(|requirement| requirement_matches(requirement, field(&requirement.key)))
}

fn node_labels(node: &NodeInfo) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    node.node.as_ref().map_or(&NONE, |node| node.labels())
}

fn requirement_matches(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or(&[]);
    let is_listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match requirement.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        operator @ ("Gt" | "Lt") => {
            let number = value.and_then(|value| value.parse::<i64>().ok());
            let bound = values.first().and_then(|bound| bound.parse::<i64>().ok());
            let both = number.zip(bound);
            both.is_some_and(|(number, bound)| if operator == "Gt" { number > bound } else { number < bound })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::tests, *};

    fn node() -> Value {
        json!({"metadata": {"name": "n1", "labels": {"zone": "a", "cores": "8"}}})
    }

    fn check(spec: Value, accepted: bool) {
        let reason = "node(s) didn't match Pod's node affinity/selector";
        tests::check(&NodeAffinity, json!({"spec": spec}), node(), if accepted { "" } else { reason });
    }

    fn requires(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        requires(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    }

    #[test]
    fn node_selector_requires_all_labels() {
        check(json!({}), true);
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "b"}}), false);
        check(json!({"nodeSelector": {"zone": "a", "disk": "ssd"}}), false);
    }

    #[test]
    fn operators_match_like_upstream() {
        check(expression("zone", "In", &["b", "a"]), true);
        check(expression("zone", "NotIn", &["a"]), false);
        check(expression("disk", "NotIn", &["ssd"]), true);
        check(expression("zone", "Exists", &[]), true);
        check(expression("disk", "Exists", &[]), false);
        check(expression("disk", "DoesNotExist", &[]), true);
        check(expression("cores", "Gt", &["4"]), true);
        check(expression("cores", "Lt", &["8"]), false);
        check(expression("zone", "Gt", &["1"]), false);
        check(expression("zone", "Like", &["a"]), false);
    }

    #[test]
    fn terms_are_ored_and_requirements_anded() {
        let (a, b) = (
            json!({"key": "zone", "operator": "In", "values": ["a"]}),
            json!({"key": "zone", "operator": "In", "values": ["b"]}),
        );
        check(requires(json!([{"matchExpressions": [b]}, {"matchExpressions": [a]}])), true);
        check(requires(json!([{"matchExpressions": [a, b]}])), false);
        check(requires(json!([{}])), false);
        let named = |name: &str| {
            requires(json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]))
        };
        check(named("n1"), true);
        check(named("n2"), false);
    }

    #[test]
    fn preferred_weights_add_up() {
        let term = |weight, zone| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}});
        let preferred = json!([term(5, "a"), term(7, "b"), term(1, "a")]);
        let spec =
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}});
        assert_eq!(NodeAffinity.score_node(&tests::pod(json!({"spec": spec})), &tests::node(node())), 6);
    }
}
