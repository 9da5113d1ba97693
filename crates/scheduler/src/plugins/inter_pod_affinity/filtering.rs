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
    counts: Arc<AffinityCounts>,
}

/// Pods by the domains that they are in.
#[derive(Clone, Default)]
pub(super) struct AffinityCounts {
    /// Pods with anti-affinity against the pod.
    existing_anti: TopologyCounts,
    /// Pods that all terms of the pod's affinity select.
    affinity: TopologyCounts,
    /// Pods that a term of the pod's anti-affinity selects.
    anti: TopologyCounts,
}

/// The required terms of a pod, with the namespaces that their selectors select now.
#[derive(PartialEq)]
pub(super) struct RequiredTerms {
    required: Vec<AffinityTerm>,
    required_anti: Vec<AffinityTerm>,
    namespace_labels: LabelSet,
}

/// The counts that pods of a class add to.
struct ClassMatches {
    /// The topology keys of their own anti-affinity against the pod.
    existing_anti: Vec<Arc<str>>,
    /// Whether the pod's affinity selects them.
    affinity: bool,
    /// The topology keys of the pod's anti-affinity that selects them.
    anti: Vec<Arc<str>>,
}

impl ClassMatches {
    fn new(incoming: &PodClass, terms: &RequiredTerms, class: &PodClass) -> Self {
        let no_labels = LabelSet::default();
        let keys = |selected: &[AffinityTerm], matches: &dyn Fn(&AffinityTerm) -> bool| {
            selected.iter().filter(|term| matches(term)).map(|term| term.topology_key.clone()).collect()
        };
        let repels = |term: &AffinityTerm| term.matches(incoming, &terms.namespace_labels);
        Self {
            existing_anti: keys(&class.affinity.required_anti, &repels),
            affinity: matches_all_terms(&terms.required, class, &no_labels),
            anti: keys(&terms.required_anti, &|term| term.matches(class, &no_labels)),
        }
    }
}

impl AffinityCounts {
    /// Accounts for `pods` pods of a class on a node.
    fn add(&mut self, matches: &ClassMatches, terms: &RequiredTerms, node: &NodeView, pods: i64) {
        matches.existing_anti.iter().for_each(|key| self.existing_anti.add(key, node, pods));
        if matches.affinity {
            terms.required.iter().for_each(|term| self.affinity.add(&term.topology_key, node, pods));
        }
        matches.anti.iter().for_each(|key| self.anti.add(key, node, pods));
    }
}

impl PreFilterPlugin for InterPodAffinity {
    fn pre_filter(&self, cycle: CycleContext<'_>, state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let class = &cycle.pod.class;
        let resolve = |terms: &[AffinityTerm]| terms.iter().map(|term| self.resolve_term(term)).collect::<Vec<_>>();
        let terms = Arc::new(RequiredTerms {
            required: resolve(&class.affinity.required),
            required_anti: resolve(&class.affinity.required_anti),
            namespace_labels: self.namespaces.labels_of(&class.namespace),
        });
        let has_terms = !terms.required.is_empty() || !terms.required_anti.is_empty();
        // Each class is matched once.
        let mut matched: HashMap<*const PodClass, ClassMatches> = HashMap::new();
        let counts = self.filter_counts.count(
            &cycle.pod.placement_class,
            terms.clone(),
            cycle.snapshot,
            |counts, node, factor| {
                if !has_terms && node.anti_affinity_pods == 0 {
                    return;
                }
                for count in &node.classes {
                    let matches = matched
                        .entry(Arc::as_ptr(&count.class))
                        .or_insert_with(|| ClassMatches::new(class, &terms, &count.class));
                    counts.add(matches, &terms, &node.node, factor * i64::from(count.pods));
                }
            },
        );
        if !has_terms && counts.existing_anti.is_empty() {
            return Ok(PreFilterResult::Skip);
        }
        state.write_for_search(AffinityFilterState { terms, counts });
        Ok(PreFilterResult::AllNodes)
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for InterPodAffinity {
    fn add_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, added: &PodInfo, node: &NodeInfo) {
        change_counts(cycle, state, added, node, 1);
    }

    fn remove_pod(&self, cycle: CycleContext<'_>, state: &mut CycleState, removed: &PodInfo, node: &NodeInfo) {
        change_counts(cycle, state, removed, node, -1);
    }
}

fn change_counts(cycle: CycleContext<'_>, state: &mut CycleState, pod: &PodInfo, node: &NodeInfo, delta: i64) {
    if let Some(AffinityFilterState { terms, counts }) = state.get_mut() {
        let matches = ClassMatches::new(&cycle.pod.class, terms, &pod.class);
        Arc::make_mut(counts).add(&matches, terms, &node.node, delta);
    }
}

impl FilterPlugin for InterPodAffinity {
    fn filter(&self, cycle: CycleContext<'_>, state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let Some(AffinityFilterState { terms, counts }) = state.get() else { return Ok(()) };
        let node = &node.node;
        if !satisfies_affinity(&terms.required, counts, &cycle.pod.class, node) {
            return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
        }
        let conflicts = |term: &AffinityTerm| counts.anti.get(&term.topology_key, node) > 0;
        if !counts.anti.is_empty() && terms.required_anti.iter().any(conflicts) {
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
fn satisfies_affinity(terms: &[AffinityTerm], counts: &AffinityCounts, class: &PodClass, node: &NodeView) -> bool {
    if terms.iter().any(|term| node.labels.get(&term.topology_key).is_none()) {
        return false;
    }
    terms.iter().all(|term| counts.affinity.get(&term.topology_key, node) > 0)
        || counts.affinity.is_empty() && matches_all_terms(terms, class, &LabelSet::default())
}
