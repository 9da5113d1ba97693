//! TaintToleration: nodes take only pods that tolerate their taints, and rather those that tolerate the soft ones.

use std::sync::Arc;

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, ScorePlugin, normalize_by_maximum},
        status::Status,
    },
    views::node_info::{NodeInfo, NodeView},
    views::pod_info::{PodClass, PodInfo},
    views::taints::{TaintEffect, has_untolerated_taint},
};

/// The plug-in.
pub struct TaintToleration;

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn ScorePlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl FilterPlugin for TaintToleration {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        match has_untolerated_taint(&node.node.taints, &cycle.pod.class.tolerations) {
            false => Ok(()),
            true => Err(Status::unresolvable("node(s) had untolerated taint(s)")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl ScorePlugin for TaintToleration {
    /// Counts the soft taints that the pod does not tolerate.
    fn score(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<i64, Status> {
        let tolerations = &cycle.pod.class.tolerations;
        let soft = node.node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
        let tolerated = |taint: &&_| {
            tolerations.iter().any(|toleration| toleration.is_for_preference() && toleration.tolerates(taint))
        };
        Ok(soft.filter(|taint| !tolerated(taint)).count() as i64)
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
        normalize_by_maximum(scores, true);
        Ok(())
    }
}

impl EnqueueExtensions for TaintToleration {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_TAINT)),
            ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let is_untolerated = |node: &Arc<NodeView>| has_untolerated_taint(&node.taints, &pod.class.tolerations);
        QueueingHint::queue_if(match object {
            EventObject::Node(change) => {
                change.old.as_ref().is_none_or(is_untolerated)
                    && change.new.as_ref().is_some_and(|new| !is_untolerated(new))
            }
            EventObject::Pod(change) => change.new.as_ref().is_some_and(|new| new.uid == pod.uid),
            _ => true,
        })
    }
}
