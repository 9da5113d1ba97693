//! NodeAffinity: node selector, required and preferred node affinity, and affinity that the configuration adds to all pods.

use std::sync::Arc;

use crate::{
    config::plugin_args::NodeAffinityArgs,
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{
            CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreFilterResult, PreScorePlugin,
            ScorePlugin, normalize_by_maximum,
        },
        status::Status,
    },
    views::node_info::{NodeInfo, NodeView},
    views::node_selector::{NodeSelector, PreferredNodeAffinity},
    views::pod_info::{PodClass, PodInfo},
};

/// The plug-in.
pub struct NodeAffinity {
    added_required: Option<NodeSelector>,
    added_preferred: Option<PreferredNodeAffinity>,
}

impl NodeAffinity {
    /// Creates the plug-in.
    pub fn new(args: &NodeAffinityArgs) -> Self {
        let added = args.added_affinity.as_ref();
        let required = added.and_then(|added| added.required_during_scheduling_ignored_during_execution.as_ref());
        let preferred = added.and_then(|added| added.preferred_during_scheduling_ignored_during_execution.as_deref());
        Self {
            added_required: required.map(NodeSelector::from_selector),
            added_preferred: preferred.filter(|terms| !terms.is_empty()).map(PreferredNodeAffinity::from_terms),
        }
    }

    fn matches_added(&self, node: &NodeView) -> bool {
        self.added_required.as_ref().is_none_or(|required| required.matches(&node.name, &node.labels))
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
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

impl PreFilterPlugin for NodeAffinity {
    fn pre_filter(&self, cycle: CycleContext<'_>, _state: &mut CycleState) -> Result<PreFilterResult, Status> {
        let required = &cycle.pod.class.node_affinity;
        match &required.node_names {
            _ if required.is_empty() && self.added_required.is_none() => Ok(PreFilterResult::Skip),
            None => Ok(PreFilterResult::AllNodes),
            Some(names) if names.is_empty() => Err(Status::unresolvable("pod affinity terms conflict")),
            Some(names) => Ok(PreFilterResult::Nodes(names.to_vec())),
        }
    }
}

impl FilterPlugin for NodeAffinity {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        if !self.matches_added(&node.node) {
            return Err(Status::unresolvable("node(s) didn't match scheduler-enforced node affinity"));
        }
        match cycle.pod.class.node_affinity.matches(node.name(), &node.node.labels) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) didn't match Pod's node affinity/selector")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl PreScorePlugin for NodeAffinity {
    fn pre_score(
        &self,
        cycle: CycleContext<'_>,
        _state: &mut CycleState,
        _nodes: &[Arc<NodeInfo>],
    ) -> Result<bool, Status> {
        Ok(cycle.pod.class.preferred_node_affinity.is_some() || self.added_preferred.is_some())
    }
}

impl ScorePlugin for NodeAffinity {
    fn score(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let preferred = [&self.added_preferred, &cycle.pod.class.preferred_node_affinity];
        Ok(preferred.into_iter().flatten().map(|terms| terms.score(node.name(), &node.node.labels)).sum())
    }

    fn scores_by_class(&self) -> bool {
        true
    }

    fn normalize(
        &self,
        _cycle: CycleContext<'_>,
        _state: &CycleState,
        _nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) -> Result<(), Status> {
        normalize_by_maximum(scores, false);
        Ok(())
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL))]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let EventObject::Node(change) = object else { return QueueingHint::Queue };
        let matches = |node: &NodeView| pod.class.node_affinity.matches(&node.name, &node.labels);
        let is_new = !change.old.as_ref().is_some_and(|old| matches(old));
        let fits_now = change.new.as_ref().is_some_and(|new| self.matches_added(new) && matches(new));
        QueueingHint::queue_if(is_new && fits_now)
    }
}
