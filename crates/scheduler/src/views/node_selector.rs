//! Node selectors and required and preferred node affinity.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1;

use crate::{
    intern::intern,
    views::labels::{LabelOperator, LabelRequirement, LabelSet},
};

/// A parsed `NodeSelector`: one of its terms must match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    terms: Box<[NodeSelectorTerm]>,
}

/// A parsed term; `None` where its requirements are invalid, so that it matches nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NodeSelectorTerm {
    labels: Option<Box<[LabelRequirement]>>,
    fields: Option<Box<[FieldRequirement]>>,
}

/// A requirement about a field of the node; the API allows `metadata.name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FieldRequirement {
    is_name: bool,
    equals: bool,
    value: Arc<str>,
}

impl NodeSelector {
    /// Parses a selector.
    pub fn from_selector(selector: &v1::NodeSelector) -> Self {
        Self { terms: selector.node_selector_terms.iter().filter_map(NodeSelectorTerm::from_term).collect() }
    }

    /// Whether a node of this name with these labels is selected.
    pub fn matches(&self, name: &str, labels: &LabelSet) -> bool {
        self.terms.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeSelectorTerm {
    /// Parses a term; `None` if it is empty, for an empty term selects nothing.
    fn from_term(term: &v1::NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.as_deref().unwrap_or(&[]);
        let fields = term.match_fields.as_deref().unwrap_or(&[]);
        if expressions.is_empty() && fields.is_empty() {
            return None;
        }
        let labels = expressions.iter().map(|expression| {
            let operator = LabelOperator::parse(&expression.operator)?;
            Some(LabelRequirement::new(&expression.key, operator, expression.values.as_deref().unwrap_or(&[])))
        });
        Some(Self { labels: labels.collect(), fields: fields.iter().map(FieldRequirement::from_requirement).collect() })
    }

    fn matches(&self, name: &str, labels: &LabelSet) -> bool {
        let labels_match =
            self.labels.as_ref().is_some_and(|all| all.iter().all(|requirement| requirement.matches(labels)));
        labels_match && self.fields.as_ref().is_some_and(|all| all.iter().all(|requirement| requirement.matches(name)))
    }
}

impl FieldRequirement {
    fn from_requirement(requirement: &v1::NodeSelectorRequirement) -> Option<Self> {
        let equals = match requirement.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        let [value] = requirement.values.as_deref().unwrap_or(&[]) else { return None };
        Some(Self { is_name: requirement.key == "metadata.name", equals, value: intern(value) })
    }

    fn matches(&self, name: &str) -> bool {
        let actual = if self.is_name { name } else { "" };
        (actual == self.value.as_ref()) == self.equals
    }
}

/// Labels with their values.
type LabelPairs = Box<[(Arc<str>, Arc<str>)]>;

/// Requirements of a pod on its node: its node selector and its required node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RequiredNodeAffinity {
    /// The labels of `spec.nodeSelector`; `None` if the field is absent.
    pub node_selector: Option<LabelPairs>,
    /// The required node affinity.
    pub affinity: Option<NodeSelector>,
    /// The names that every term of the affinity demands, if all of them do.
    pub node_names: Option<Box<[Arc<str>]>>,
}

impl RequiredNodeAffinity {
    /// Parses the requirements of a pod.
    pub fn from_spec(spec: &v1::PodSpec) -> Self {
        let node_selector = spec.node_selector.as_ref().map(interned_pairs);
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
        Self {
            node_selector,
            affinity: required.map(NodeSelector::from_selector),
            node_names: required.and_then(demanded_names),
        }
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.node_selector.is_none() && self.affinity.is_none()
    }

    /// Whether a node of this name with these labels fulfils the requirements.
    pub fn matches(&self, name: &str, labels: &LabelSet) -> bool {
        let mut wanted = self.node_selector.iter().flatten();
        wanted.all(|(key, value)| labels.get(key) == Some(value))
            && self.affinity.as_ref().is_none_or(|affinity| affinity.matches(name, labels))
    }
}

fn interned_pairs(labels: &BTreeMap<String, String>) -> LabelPairs {
    labels.iter().map(|(key, value)| (intern(key), intern(value))).collect()
}

/// Returns the union of the node names that the terms demand by `metadata.name In`; `None` if a term demands none.
fn demanded_names(selector: &v1::NodeSelector) -> Option<Box<[Arc<str>]>> {
    let mut names: Vec<Arc<str>> = Vec::new();
    if selector.node_selector_terms.is_empty() {
        return None;
    }
    for term in &selector.node_selector_terms {
        let fields = term.match_fields.iter().flatten();
        let mut demanded: Option<Vec<&String>> = None;
        for field in fields.filter(|field| field.key == "metadata.name" && field.operator == "In") {
            let values: Vec<&String> = field.values.iter().flatten().collect();
            demanded = Some(match demanded {
                None => values,
                Some(known) => known.into_iter().filter(|name| values.contains(name)).collect(),
            });
        }
        names.extend(demanded?.into_iter().map(|name| intern(name)));
    }
    names.sort();
    names.dedup();
    Some(names.into())
}

/// Preferred node affinity: terms with weights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PreferredNodeAffinity {
    terms: Box<[(i64, NodeSelectorTerm)]>,
}

impl PreferredNodeAffinity {
    /// Parses preferred terms; empty ones and those without weight do not count.
    pub fn from_terms(terms: &[v1::PreferredSchedulingTerm]) -> Self {
        let weighted = terms.iter().filter(|term| term.weight != 0);
        let parsed =
            weighted.filter_map(|term| Some((term.weight.into(), NodeSelectorTerm::from_term(&term.preference)?)));
        Self { terms: parsed.collect() }
    }

    /// Sums the weights of the terms that match.
    pub fn score(&self, name: &str, labels: &LabelSet) -> i64 {
        self.terms.iter().filter(|(_, term)| term.matches(name, labels)).map(|(weight, _)| weight).sum()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn labels() -> LabelSet {
        LabelSet::from_map(Some(&[("zone".into(), "a".into()), ("cores".into(), "8".into())].into()))
    }

    fn check(spec: Value, expected: bool) {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let required = RequiredNodeAffinity::from_spec(&serde_json::from_value(spec.clone()).unwrap());
        assert_eq!(required.matches("n1", &labels()), expected, "{spec}");
    }

    fn requires(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn terms_are_ored_and_requirements_anded() {
        let (a, b) = (
            json!({"key": "zone", "operator": "In", "values": ["a"]}),
            json!({"key": "zone", "operator": "In", "values": ["b"]}),
        );
        check(json!({"nodeSelector": {"zone": "a"}}), true);
        check(json!({"nodeSelector": {"zone": "a", "disk": "ssd"}}), false);
        check(requires(json!([{"matchExpressions": [b]}, {"matchExpressions": [a]}])), true);
        check(requires(json!([{"matchExpressions": [a, b]}])), false);
        check(requires(json!([{}])), false);
        check(requires(json!([{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]}])), true);
    }

    #[test]
    fn names_are_demanded_by_fields() {
        let named =
            |names: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        check(requires(json!([named(&["n1"])])), true);
        check(requires(json!([named(&["n2"])])), false);
        let selector = |terms: Value| serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        let demanded = |terms: Value| demanded_names(&selector(terms)).map(|names| names.join(","));
        assert_eq!(demanded(json!([named(&["b"]), named(&["a"])])), Some("a,b".into()));
        assert_eq!(demanded(json!([named(&["b"]), {}])), None);
        let twice = json!([{"matchFields": [named(&["a"])["matchFields"][0], named(&["b"])["matchFields"][0]]}]);
        assert_eq!(demanded(twice), Some("".into()));
    }

    #[test]
    fn preferred_weights_add_up() {
        let term = |weight: i32, zone: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}});
        let terms: Vec<v1::PreferredSchedulingTerm> =
            serde_json::from_value(json!([term(5, "a"), term(7, "b"), term(1, "a"), {"weight": 9, "preference": {}}]))
                .unwrap();
        assert_eq!(PreferredNodeAffinity::from_terms(&terms).score("n1", &labels()), 6);
    }
}
