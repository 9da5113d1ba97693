//! InterPodAffinity: pods near to or apart from other pods.
//!
//! Pods are counted by class, so that a node costs as much as it has kinds of pods, and each class is matched once per cycle.

mod filtering;
mod scoring;

use std::{collections::HashMap, sync::Arc};

use self::{
    filtering::{AffinityCounts, RequiredTerms},
    scoring::PreferredTerms,
};
use crate::{
    config::plugin_args::InterPodAffinityArgs,
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, ObjectChange, QueueingHint},
        extension_points::{EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, ScorePlugin},
        node_counts::NodeCounts,
    },
    objects::namespaces::NamespaceLister,
    views::labels::LabelSet,
    views::node_info::NodeView,
    views::pod_info::PodInfo,
    views::{affinity_terms::AffinityTerm, class_matching::matches_all_terms},
};

/// The plug-in.
pub struct InterPodAffinity {
    args: InterPodAffinityArgs,
    namespaces: NamespaceLister,
    filter_counts: NodeCounts<Arc<RequiredTerms>, AffinityCounts>,
    score_counts: NodeCounts<Arc<PreferredTerms>, TopologyCounts>,
}

impl InterPodAffinity {
    /// Creates the plug-in.
    pub fn new(args: InterPodAffinityArgs, namespaces: NamespaceLister) -> Self {
        Self { args, namespaces, filter_counts: NodeCounts::default(), score_counts: NodeCounts::default() }
    }

    /// Returns a term of the incoming pod with the namespaces that its selector selects.
    fn resolve_term(&self, term: &AffinityTerm) -> AffinityTerm {
        if term.namespace_selector.is_empty() || term.namespace_selector == crate::views::labels::Selector::Nothing {
            return term.clone();
        }
        let selected = self.namespaces.select(&term.namespace_selector);
        let namespaces = term.namespaces.iter().cloned().chain(selected).collect();
        AffinityTerm { namespaces, ..term.clone() }
    }
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_pre_score(&self) -> Option<&dyn PreScorePlugin> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

/// Counts by topology key and value.
#[derive(Clone, Debug, Default)]
struct TopologyCounts(HashMap<Arc<str>, HashMap<Arc<str>, i64>>);

impl TopologyCounts {
    /// Adds to the count of a node's domain, if the node has the label. Zero counts are dropped.
    fn add(&mut self, key: &Arc<str>, node: &NodeView, delta: i64) {
        let Some(value) = node.labels.get(key).filter(|_| delta != 0) else { return };
        if !self.0.contains_key(key) {
            self.0.insert(key.clone(), HashMap::new());
        }
        let Some(counts) = self.0.get_mut(key) else { return };
        let count = counts.entry(value.clone()).or_insert(0);
        *count += delta;
        if *count == 0 {
            counts.remove(value);
            if counts.is_empty() {
                self.0.remove(key);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The count of a node's domain.
    fn get(&self, key: &str, node: &NodeView) -> i64 {
        let count = || self.0.get(key)?.get(node.labels.get(key)?).copied();
        count().unwrap_or(0)
    }

    /// The keys.
    fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }
}

impl EnqueueExtensions for InterPodAffinity {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let pod = ActionType::ADD.or(ActionType::UPDATE_POD_LABEL).or(ActionType::DELETE);
        let node = ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL);
        vec![ClusterEvent::new(EventResource::Pod, pod), ClusterEvent::new(EventResource::Node, node)]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::Pod(change) => helps_pod(change, pod),
            EventObject::Node(change) => helps_node(change, pod),
            _ => true,
        })
    }
}

fn helps_pod(change: &ObjectChange<PodInfo>, pod: &PodInfo) -> bool {
    if let (Some(_), Some(new)) = (&change.old, &change.new)
        && new.uid == pod.uid
    {
        return true;
    }
    let is_placed = |other: &Arc<PodInfo>| other.node_name.is_some() || other.nominated_node_name.is_some();
    if ![&change.old, &change.new].into_iter().flatten().all(is_placed) {
        return false;
    }
    // As upstream, namespaces are told by name here; a selector of namespaces is matched against no labels.
    let no_labels = LabelSet::default();
    let matches = |terms: &[AffinityTerm], other: &PodInfo| matches_all_terms(terms, &other.class, &no_labels);
    let terms = &pod.class.affinity;
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            !matches(&terms.required, old) && matches(&terms.required, new)
                || matches(&terms.required_anti, old) && !matches(&terms.required_anti, new)
        }
        (None, Some(new)) => matches(&terms.required, new),
        (Some(old), None) => matches(&terms.required_anti, old) || matches(&old.class.affinity.required_anti, pod),
        (None, None) => false,
    }
}

fn helps_node(change: &ObjectChange<NodeView>, pod: &PodInfo) -> bool {
    let Some(new) = &change.new else { return false };
    let terms = &pod.class.affinity;
    let Some(old) = &change.old else {
        let has = |term: &AffinityTerm| new.labels.get(&term.topology_key).is_some();
        return terms.required.iter().any(has) || !terms.required_anti.is_empty();
    };
    let values = |term: &AffinityTerm| (old.labels.get(&term.topology_key), new.labels.get(&term.topology_key));
    let gains = |term: &AffinityTerm| matches!(values(term), (old, Some(new)) if old != Some(new));
    let loses = |term: &AffinityTerm| matches!(values(term), (Some(old), new) if new != Some(old));
    terms.required.iter().any(gains) || terms.required_anti.iter().any(loses)
}
