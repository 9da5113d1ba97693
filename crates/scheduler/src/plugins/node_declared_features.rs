//! NodeDeclaredFeatures: a pod that needs a feature of the kubelet fits on nodes that declare it.

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
pub struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatures"
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

impl PreFilterPlugin for NodeDeclaredFeatures {
    fn pre_filter(&self, cycle: CycleContext<'_>, _state: &mut CycleState) -> Result<PreFilterResult, Status> {
        Ok(match cycle.pod.class.required_features.is_empty() {
            true => PreFilterResult::Skip,
            false => PreFilterResult::AllNodes,
        })
    }
}

impl FilterPlugin for NodeDeclaredFeatures {
    fn filter(&self, cycle: CycleContext<'_>, _state: &CycleState, node: &NodeInfo) -> Result<(), Status> {
        let declared = &node.node.declared_features;
        let has = |feature: &&str| declared.binary_search_by(|known| known.as_ref().cmp(feature)).is_ok();
        match cycle.pod.class.required_features.iter().all(has) {
            true => Ok(()),
            false => Err(Status::unresolvable("node(s) didn't match Pod's required features")),
        }
    }

    fn filters_by_class(&self, _class: &PodClass) -> bool {
        true
    }
}

impl EnqueueExtensions for NodeDeclaredFeatures {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Node, ActionType::ADD.or(ActionType::UPDATE_NODE_DECLARED_FEATURE)),
            ClusterEvent::new(EventResource::Pod, ActionType::UPDATE),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::Node(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => old.declared_features != new.declared_features,
                _ => true,
            },
            EventObject::Pod(change) => match (&change.old, &change.new) {
                (Some(old), Some(new)) => {
                    new.uid == pod.uid && old.class.required_features != new.class.required_features
                }
                _ => false,
            },
            _ => true,
        })
    }
}
