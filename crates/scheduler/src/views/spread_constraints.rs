//! Topology spread constraints of pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, TopologySpreadConstraint};

use crate::{
    intern::intern,
    views::labels::{LabelOperator, LabelRequirement, LabelSet, Selector},
};

/// A parsed constraint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// The greatest difference between a domain and the one with the fewest pods.
    pub max_skew: i32,
    /// The node label whose value is the domain.
    pub topology_key: Arc<str>,
    /// Whether pods are not scheduled rather than placed against the constraint.
    pub is_hard: bool,
    /// Selects the pods that count.
    pub selector: Selector,
    /// Number of domains below which the minimum is zero.
    pub min_domains: i32,
    /// Whether only nodes count that the pod's node affinity admits.
    pub honors_affinity: bool,
    /// Whether only nodes count whose taints the pod tolerates.
    pub honors_taints: bool,
}

impl SpreadConstraint {
    /// Parses the constraints of a pod.
    pub fn of_pod(spec: &PodSpec, labels: &LabelSet) -> Box<[Self]> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        constraints.map(|constraint| Self::from_constraint(constraint, labels)).collect()
    }

    /// Parses a constraint; `labels` are those of its pod, for `matchLabelKeys`.
    pub fn from_constraint(constraint: &TopologySpreadConstraint, labels: &LabelSet) -> Self {
        let selector = Selector::from_label_selector(constraint.label_selector.as_ref());
        let keys = constraint.match_label_keys.iter().flatten();
        let matched: Box<[LabelRequirement]> = keys
            .filter_map(|key| {
                let value = labels.get(key)?;
                Some(LabelRequirement::new(key, LabelOperator::In, &[value.to_string()]))
            })
            .collect();
        Self {
            max_skew: constraint.max_skew,
            topology_key: intern(&constraint.topology_key),
            is_hard: constraint.when_unsatisfiable == "DoNotSchedule",
            selector: if matched.is_empty() { selector } else { Selector::All(matched).and(&selector) },
            min_domains: constraint.min_domains.unwrap_or(1),
            honors_affinity: constraint.node_affinity_policy.as_deref().unwrap_or("Honor") == "Honor",
            honors_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }
}
