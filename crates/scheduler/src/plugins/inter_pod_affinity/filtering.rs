//! Filtering by required affinity and anti-affinity, of the pod and of the pods that are there.

use std::{collections::HashMap, sync::Arc};

use super::{InterPodAffinity, TopologyCounts};
use crate::{
    framework::{
        cycle_state::CycleState,
        extension_points::{CycleContext, FilterPlugin, PreFilterExtensions, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    views::labels::LabelSet,
    views::node_info::{NodeInfo, NodeView},
    views::pod_info::{PodClass, PodInfo},
    views::{affinity_terms::AffinityTerm, class_matching::matches_all_terms},
};

/// The counts of the cycle.
#[derive(Clone)]
struct AffinityFilterState {
    terms: Arc<RequiredTerms>,
    /// Pods with anti-affinity against the pod.
    existing_anti: TopologyCounts,
    /// Pods that all terms of the pod's affinity select.
    affinity: TopologyCounts,
    /// Pods that a term of the pod's anti-affinity selects.
    anti: TopologyCounts,
}

struct RequiredTerms {
    required: Vec<AffinityTerm>,
    required_anti: Vec<AffinityTerm>,
    namespace_labels: LabelSet,
}

impl AffinityFilterState {
    /// Accounts for `delta` pods of a class on a node.
    fn add_pods(&mut self, incoming: &PodClass, class: &PodClass, node: &NodeView, delta: i64) {
        let terms = self.terms.clone();
        for term in &class.affinity.required_anti {
            if term.matches(incoming, &terms.namespace_labels) {
                self.existing_anti.add(&term.topology_key, node, delta);
            }
        }
        let no_labels = LabelSet::default();
        if matches_all_terms(&terms.required, class, &no_labels) {
            terms.required.iter().for_each(|term| self.affinity.add(&term.topology_key, node, delta));
        }
        for term in terms.required_anti.iter().filter(|term| term.matches(class, &no_labels)) {
            self.anti.add(&term.topology_key, node, delta);
        }
    }

    /// Counts the pods that the incoming pod's own terms select, matching every class once.
    fn count_selected(&mut self, nodes: &[Arc<NodeInfo>]) {
        let terms = self.terms.clone();
        let no_labels = LabelSet::default();
        let mut matched: HashMap<*const PodClass, (bool, Vec<usize>)> = HashMap::new();
        for node in nodes {
            for count in &node.classes {
                let (all, anti) = matched.entry(Arc::as_ptr(&count.class)).or_insert_with(|| {
                    let anti = terms.required_anti.iter().enumerate();
                    let anti = anti.filter(|(_, term)| term.matches(&count.class, &no_labels));
                    (
                        matches_all_terms(&terms.required, &count.class, &no_labels),
                        anti.map(|(index, _)| index).collect(),
                    )
                });
                let pods = i64::from(count.pods);
                if *all {
                    terms.required.iter().for_each(|term| self.affinity.add(&term.topology_key, &node.node, pods));
                }
                anti.iter().for_each(|index| {
                    self.anti.add(&terms.required_anti[*index].topology_key, &node.node, pods);
                });
            }
        }
    }
}

impl PreFilterPlugin for InterPodAffinity {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let class = &cycle.pod.class;
        let resolve = |terms: &[AffinityTerm]| terms.iter().map(|term| self.resolve_term(term)).collect::<Vec<_>>();
        let terms = RequiredTerms {
            required: resolve(&class.affinity.required),
            required_anti: resolve(&class.affinity.required_anti),
            namespace_labels: self.namespaces.labels_of(&class.namespace),
        };
        let has_terms = !terms.required.is_empty() || !terms.required_anti.is_empty();
        let mut counts = AffinityFilterState {
            terms: Arc::new(terms),
            existing_anti: TopologyCounts::default(),
            affinity: TopologyCounts::default(),
            anti: TopologyCounts::default(),
        };
        for node in cycle.snapshot.anti_affinity_nodes() {
            for count in node.classes.iter().filter(|count| !count.class.affinity.required_anti.is_empty()) {
                for term in &count.class.affinity.required_anti {
                    if term.matches(class, &counts.terms.namespace_labels) {
                        counts.existing_anti.add(&term.topology_key, &node.node, i64::from(count.pods));
                    }
                }
            }
        }
        if has_terms {
            counts.count_selected(cycle.snapshot.nodes());
        } else if counts.existing_anti.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.write(counts);
        Ok(PreFilterResult::AllNodes)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for InterPodAffinity {
    fn add_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, added: &PodInfo, node: &NodeInfo) {
        if let Some(counts) = state.get_mut::<AffinityFilterState>() {
            counts.add_pods(&cycle.pod.class, &added.class, &node.node, 1);
        }
    }

    fn remove_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, removed: &PodInfo, node: &NodeInfo) {
        if let Some(counts) = state.get_mut::<AffinityFilterState>() {
            counts.add_pods(&cycle.pod.class, &removed.class, &node.node, -1);
        }
    }
}

impl FilterPlugin for InterPodAffinity {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(counts) = state.get::<AffinityFilterState>() else { return Ok(()) };
        let node = &node.node;
        if !satisfies_affinity(counts, &cycle.pod.class, node) {
            return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let conflicts = |term: &AffinityTerm| counts.anti.get(&term.topology_key, node) > 0;
        if !counts.anti.is_empty() && counts.terms.required_anti.iter().any(conflicts) {
            return Err(Status::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if counts.existing_anti.keys().any(|key| counts.existing_anti.get(key, node) > 0) {
            return Err(Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }
}

/// Whether pods that the affinity demands are in the node's domains. The first of a group of pods that demand each
/// other may go anywhere.
fn satisfies_affinity(counts: &AffinityFilterState, class: &PodClass, node: &NodeView) -> bool {
    let terms = &counts.terms.required;
    if terms.iter().any(|term| node.labels.get(&term.topology_key).is_none()) {
        return false;
    }
    terms.iter().all(|term| counts.affinity.get(&term.topology_key, node) > 0)
        || counts.affinity.is_empty() && matches_all_terms(terms, class, &LabelSet::default())
}
