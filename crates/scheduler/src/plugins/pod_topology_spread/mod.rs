//! PodTopologySpread: spreads pods over the domains of a topology, by constraints of the pod or of the configuration.

mod filtering;
mod scoring;

use std::sync::Arc;

use self::{
    filtering::ConstraintDomains,
    scoring::{DomainPods, ScoreContext},
};
use crate::{
    config::plugin_args::{PodTopologySpreadArgs, SpreadDefaulting},
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, ObjectChange, QueueingHint},
        extension_points::{EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, ScorePlugin},
        node_counts::NodeCounts,
    },
    objects::workload_selectors::WorkloadSelectors,
    views::labels::{LabelSet, Selector},
    views::node_info::{NodeInfo, NodeView},
    views::pod_info::{PodClass, PodInfo},
    views::spread_constraints::SpreadConstraint,
};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The plug-in.
pub struct PodTopologySpread {
    args: PodTopologySpreadArgs,
    workloads: WorkloadSelectors,
    filter_counts: NodeCounts<Arc<[SpreadConstraint]>, ConstraintDomains>,
    score_counts: NodeCounts<ScoreContext, DomainPods>,
}

impl PodTopologySpread {
    /// Creates the plug-in; `workloads` tells which pods belong together where the pod has no constraints.
    pub fn new(args: PodTopologySpreadArgs, workloads: WorkloadSelectors) -> Self {
        Self { args, workloads, filter_counts: NodeCounts::default(), score_counts: NodeCounts::default() }
    }

    fn is_system_defaulted(&self) -> bool {
        self.args.defaulting_type == SpreadDefaulting::System
    }

    /// Returns the hard or the soft constraints of a pod, or those that it has by default.
    fn constraints(&self, class: &PodClass, is_hard: bool) -> Vec<SpreadConstraint> {
        let own = &class.spread_constraints;
        if !own.is_empty() {
            return own.iter().filter(|constraint| constraint.is_hard == is_hard).cloned().collect();
        }
        let defaults = self.args.constraints();
        let defaults = defaults.iter().map(|constraint| SpreadConstraint::from_constraint(constraint, &class.labels));
        let mut constraints: Vec<_> = defaults.filter(|constraint| constraint.is_hard == is_hard).collect();
        if constraints.is_empty() {
            return constraints;
        }
        let selector = self.workloads.selector_of(class);
        if selector.is_empty() {
            return Vec::new();
        }
        constraints.iter_mut().for_each(|constraint| constraint.selector = selector.clone());
        constraints
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
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

/// Whether the node has the labels of all constraints.
fn has_all_topologies(node: &NodeView, constraints: &[SpreadConstraint]) -> bool {
    constraints.iter().all(|constraint| node.labels.get(&constraint.topology_key).is_some())
}

/// Counts the pods of a namespace on a node that a selector matches; those that are being deleted do not count.
fn count_matching_pods(node: &NodeInfo, selector: &Selector, namespace: &Arc<str>) -> i64 {
    if selector.is_empty() {
        return 0;
    }
    let of_namespace = node.classes.iter().filter(|count| count.class.namespace == *namespace);
    let matching = of_namespace.filter(|count| selector.matches(&count.class.labels));
    matching.map(|count| i64::from(count.pods - count.deleting)).sum()
}

impl EnqueueExtensions for PodTopologySpread {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let pod = ActionType::ADD
            .or(ActionType::UPDATE_POD_LABEL)
            .or(ActionType::UPDATE_POD_TOLERATION)
            .or(ActionType::DELETE);
        let node =
            ActionType::ADD.or(ActionType::DELETE).or(ActionType::UPDATE_NODE_LABEL).or(ActionType::UPDATE_NODE_TAINT);
        vec![ClusterEvent::new(EventResource::Pod, pod), ClusterEvent::new(EventResource::Node, node)]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let constraints = self.constraints(&pod.class, true);
        QueueingHint::queue_if(match object {
            EventObject::Pod(change) => helps_pod(change, pod, &constraints),
            EventObject::Node(change) => helps_node(change, &constraints),
            _ => true,
        })
    }
}

fn helps_pod(change: &ObjectChange<PodInfo>, pod: &PodInfo, constraints: &[SpreadConstraint]) -> bool {
    let is_involved = |other: &Arc<PodInfo>| {
        let is_placed = other.node_name.is_some() || other.nominated_node_name.is_some();
        other.uid == pod.uid || is_placed && other.class.namespace == pod.class.namespace
    };
    if ![&change.old, &change.new].into_iter().flatten().all(is_involved) {
        return false;
    }
    let counts = |labels: &LabelSet| constraints.iter().any(|constraint| constraint.selector.matches(labels));
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let honors_taints = constraints.iter().any(|constraint| constraint.honors_taints);
            let tolerates_more = new.uid == pod.uid && old.class.tolerations != new.class.tolerations;
            let changes_count = |constraint: &SpreadConstraint| {
                constraint.selector.matches(&old.class.labels) != constraint.selector.matches(&new.class.labels)
            };
            tolerates_more && honors_taints || constraints.iter().any(changes_count)
        }
        (None, Some(other)) | (Some(other), None) => counts(&other.class.labels),
        (None, None) => false,
    }
}

fn helps_node(change: &ObjectChange<NodeView>, constraints: &[SpreadConstraint]) -> bool {
    let matches = |node: &Arc<NodeView>| has_all_topologies(node, constraints);
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let moved = |constraint: &SpreadConstraint| {
                old.labels.get(&constraint.topology_key) != new.labels.get(&constraint.topology_key)
            };
            let changed = constraints.iter().any(moved) || old.taints != new.taints;
            matches(old) != matches(new) || matches(new) && changed
        }
        (None, Some(node)) | (Some(node), None) => matches(node),
        (None, None) => false,
    }
}
