//! NodeUnschedulable: nodes with `spec.unschedulable` take only pods that tolerate it.

use std::sync::{Arc, LazyLock};

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{CycleContext, EnqueueExtensions, FilterPlugin, Plugin},
        status::Status,
    },
    views::node_info::NodeInfo,
    views::pod_info::{PodClass, PodInfo},
    views::taints::{NodeTaint, TaintEffect, tolerates_taint},
};

/// The plug-in.
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn as_filter(&self) -> Option<&dyn FilterPlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }
}

/// Whether pods of the class tolerate unschedulable nodes.
fn tolerates_unschedulable(class: &PodClass) -> bool {
    static TAINT: LazyLock<NodeTaint> = LazyLock::new(|| NodeTaint {
        key: Arc::from("node.kubernetes.io/unschedulable"),
        value: Arc::from(""),
        effect: TaintEffect::NoSchedule,
    });
    tolerates_taint(&class.tolerations, &TAINT)
}

impl FilterPlugin for NodeUnschedulable {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        match !node.node.is_unschedulable || tolerates_unschedulable(&cycle.pod.class) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) were unschedulable")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl EnqueueExtensions for NodeUnschedulable {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_TAINT)),
            ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::Node(change) => {
                let was_closed = change.old.as_ref().is_none_or(|old| old.is_unschedulable);
                was_closed && change.new.as_ref().is_some_and(|new| !new.is_unschedulable)
            }
            EventObject::Pod(change) => {
                let own = change.new.as_ref().filter(|new| new.uid == pod.uid);
                own.is_some_and(|new| tolerates_unschedulable(&new.class))
            }
            _ => true,
        })
    }
}
