//! Matching of pods with affinity terms, of nodes with spread constraints, and of entries with claims.

use super::{
    affinity_terms::AffinityTerm,
    labels::LabelSet,
    node_info::NodeView,
    pod_info::{PodClass, PodInfo},
    resource_claims::{EntryClaim, PodClaimEntry},
    spread_constraints::SpreadConstraint,
    taints::has_untolerated_taint,
};

impl AffinityTerm {
    /// Whether the term selects pods of a class; `namespace_labels` are those of the class's namespace.
    pub fn matches(&self, class: &PodClass, namespace_labels: &LabelSet) -> bool {
        let in_namespace =
            self.namespaces.contains(&class.namespace) || self.namespace_selector.matches(namespace_labels);
        in_namespace && self.selector.matches(&class.labels)
    }
}

/// Whether all terms select pods of the class; without terms nothing is selected.
pub fn matches_all_terms(terms: &[AffinityTerm], class: &PodClass, namespace_labels: &LabelSet) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(class, namespace_labels))
}

impl SpreadConstraint {
    /// Whether pods on the node count for a pod of the class.
    pub fn counts_node(&self, class: &PodClass, node: &NodeView) -> bool {
        (!self.honors_affinity || class.node_affinity.matches(&node.name, &node.labels))
            && (!self.honors_taints || !has_untolerated_taint(&node.taints, &class.tolerations))
    }
}

impl PodClaimEntry {
    /// Returns the claim of this entry of a pod.
    pub fn claim_of(&self, pod: &PodInfo) -> EntryClaim {
        if let Some(name) = &self.claim_name {
            return EntryClaim::Named(name.clone(), false);
        }
        match pod.claim_statuses.iter().find(|(entry, _)| *entry == self.name) {
            Some((_, Some(name))) => EntryClaim::Named(name.clone(), true),
            Some((_, None)) => EntryClaim::NotNeeded,
            None => EntryClaim::Missing,
        }
    }
}
