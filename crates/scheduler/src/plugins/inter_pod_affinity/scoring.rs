//! Scoring by preferred affinity and anti-affinity, of the pod and of the pods that are there.

use std::{collections::HashMap, sync::Arc};

use super::{InterPodAffinity, TopologyCounts};
use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, MAX_NODE_SCORE, PreScorePlugin, ScorePlugin},
        status::Status,
    },
    views::affinity_terms::AffinityTerm,
    views::labels::LabelSet,
    views::node_info::NodeInfo,
    views::pod_info::PodClass,
};

/// The weights of the cycle.
#[derive(Clone)]
struct AffinityScoreState(Arc<TopologyCounts>);

/// The preferred terms of a pod with their weights, and the namespaces that their selectors select now.
#[derive(PartialEq)]
pub(super) struct PreferredTerms {
    own: Vec<(i64, AffinityTerm)>,
    namespace_labels: LabelSet,
}

/// Weights per pod of a class, by topology key.
type ClassWeights = Vec<(Arc<str>, i64)>;

impl InterPodAffinity {
    /// Returns what one pod of a class adds to the scores of its domains.
    fn class_weights(&self, incoming: &PodClass, terms: &PreferredTerms, class: &PodClass) -> ClassWeights {
        let mut weights = ClassWeights::new();
        let no_labels = LabelSet::default();
        for (weight, term) in terms.own.iter().filter(|(_, term)| term.matches(class, &no_labels)) {
            weights.push((term.topology_key.clone(), *weight));
        }
        let hard = i64::from(self.args.hard_pod_affinity_weight);
        let affinity = &class.affinity;
        let required = affinity.required.iter().filter(|_| hard > 0).map(|term| (hard, term));
        let preferred = affinity.preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
        let anti = affinity.preferred_anti.iter().map(|(weight, term)| (-i64::from(*weight), term));
        for (weight, term) in required.chain(preferred).chain(anti) {
            if term.matches(incoming, &terms.namespace_labels) {
                weights.push((term.topology_key.clone(), weight));
            }
        }
        weights
    }
}

impl PreScorePlugin for InterPodAffinity {
    fn pre_score(
        &self,
        cycle: CycleContext<'_>,
        state: &mut CycleState,
        _nodes: &[Arc<NodeInfo>],
    ) -> Result<bool, Status> {
        let class = &cycle.pod.class;
        let preferred = class.affinity.preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
        let anti = class.affinity.preferred_anti.iter().map(|(weight, term)| (-i64::from(*weight), term));
        let own: Vec<_> = preferred.chain(anti).map(|(weight, term)| (weight, self.resolve_term(term))).collect();
        if own.is_empty() && self.args.ignore_preferred_terms_of_existing_pods {
            return Ok(false);
        }
        let terms = Arc::new(PreferredTerms { own, namespace_labels: self.namespaces.labels_of(&class.namespace) });
        // Each class is matched once.
        let mut by_class: HashMap<*const PodClass, ClassWeights> = HashMap::new();
        let weights = self.score_counts.count(
            &cycle.pod.placement_class,
            terms.clone(),
            cycle.snapshot,
            |weights, node, factor| {
                if terms.own.is_empty() && node.affinity_pods == 0 {
                    return;
                }
                for count in
                    node.classes.iter().filter(|count| !terms.own.is_empty() || count.class.affinity.is_present)
                {
                    let of_class = by_class
                        .entry(Arc::as_ptr(&count.class))
                        .or_insert_with(|| self.class_weights(class, &terms, &count.class));
                    for (key, weight) in of_class.iter() {
                        weights.add(key, &node.node, factor * weight * i64::from(count.pods));
                    }
                }
            },
        );
        if weights.is_empty() {
            return Ok(false);
        }
        state.write_for_search(AffinityScoreState(weights));
        Ok(true)
    }
}

impl ScorePlugin for InterPodAffinity {
    fn score(&self, _cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let Some(AffinityScoreState(scores)) = state.get() else { return Ok(0) };
        Ok(scores.keys().map(|key| scores.get(key, &node.node)).sum())
    }

    fn normalize(
        &self,
        _cycle: CycleContext<'_>,
        _state: &CycleState,
        _nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        let least = scores.iter().copied().min().unwrap_or(0);
        let difference = scores.iter().copied().max().unwrap_or(0) - least;
        for score in scores.iter_mut() {
            *score = match difference {
                0 => 0,
                _ => (MAX_NODE_SCORE as f64 * ((*score - least) as f64 / difference as f64)) as i64,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::TopologyCounts;

    #[test]
    fn counts_drop_zeros() {
        let node = serde_json::json!({"metadata": {"name": "n", "labels": {"zone": "a"}}});
        let node = crate::views::node_info::NodeView::from_node(&serde_json::from_value(node).unwrap());
        let mut counts = TopologyCounts::default();
        counts.add(&"zone".into(), &node, 2);
        counts.add(&"rack".into(), &node, 2);
        assert_eq!((counts.get("zone", &node), counts.get("rack", &node)), (2, 0));
        counts.add(&"zone".into(), &node, -2);
        assert!(counts.is_empty());
    }
}
