//! NodePorts: a pod needs its host ports free.

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin, PreFilterPlugin, PreFilterResult},
        status::Status,
    },
    views::host_ports::fits_ports,
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
};

/// The plug-in.
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
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

impl PreFilterPlugin for NodePorts {
    fn pre_filter(&self, cycle: CycleContext<'_>, _state: &mut CycleState) -> Result<PreFilterResult, Status> {
        Ok(match cycle.pod.class.host_ports.is_empty() {
            true => PreFilterResult::Skip,
            false => PreFilterResult::AllNodes,
        })
    }
}

impl FilterPlugin for NodePorts {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        match fits_ports(&cycle.pod.class.host_ports, &node.used_ports) {
            true => Ok(()),
            false => Err(Status::unschedulable("node(s) didn't have free ports for the requested pod ports")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl EnqueueExtensions for NodePorts {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Pod, ActionType::DELETE),
            ClusterEvent::new(EventResource::Node, ActionType::ADD),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let EventObject::Pod(change) = object else { return QueueingHint::Queue };
        let Some(deleted) = &change.old else { return QueueingHint::Skip };
        let was_placed = deleted.node_name.is_some() || deleted.nominated_node_name.is_some();
        QueueingHint::queue_if(was_placed && !fits_ports(&pod.class.host_ports, &deleted.class.host_ports))
    }
}
