//! SchedulingGates: keeps pods out of the active queue while they have scheduling gates.

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        extension_points::{EnqueueExtensions, Plugin, PreEnqueuePlugin},
        status::Status,
    },
    views::pod_info::PodInfo,
};

/// The plug-in.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueuePlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

impl PreEnqueuePlugin for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        let gates = &pod.class.scheduling_gates;
        match gates.is_empty() {
            true => Ok(()),
            false => Err(Status::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" ")))),
        }
    }
}

impl EnqueueExtensions for SchedulingGates {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_GATES_ELIMINATED)]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let is_own =
            matches!(object, EventObject::Pod(change) if change.new.as_ref().is_some_and(|new| new.uid == pod.uid));
        QueueingHint::queue_if(is_own)
    }
}
