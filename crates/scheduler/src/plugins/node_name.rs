//! NodeName: a pod that names its node fits there only.

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
};

/// The plug-in.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilterPlugin> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl PreFilterPlugin for NodeName {
    /// Spares the filter for pods without a node's name: all that wait.
    fn pre_filter(&self, cycle: CycleContext<'_>, _state: &mut CycleState) -> Result<PreFilterResult, Status> {
        Ok(match cycle.pod.node_name {
            None => PreFilterResult::Skip,
            Some(_) => PreFilterResult::AllNodes,
        })
    }
}

impl FilterPlugin for NodeName {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        match cycle.pod.node_name.as_ref().is_none_or(|name| name == node.name()) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) didn't match the requested node name")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl EnqueueExtensions for NodeName {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Node, ActionType::ADD)]
    }

    fn hint(&self, _event: ClusterEvent, _pod: &PodInfo, _object: &EventObject) -> QueueingHint {
        QueueingHint::Queue
    }
}
