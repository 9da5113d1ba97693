//! The events that may make pods schedulable whose claims were not allocated.

use super::{DynamicResources, claim_tracker::allocation};
use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        extension_points::EnqueueExtensions,
    },
    views::pod_info::PodInfo,
};

impl EnqueueExtensions for DynamicResources {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        let changed = ActionType::ADD.or(ActionType::UPDATE);
        let node = ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL).or(ActionType::UPDATE_NODE_ALLOCATABLE);
        vec![
            ClusterEvent::new(EventResource::Node, node),
            ClusterEvent::new(EventResource::ResourceClaim, changed),
            ClusterEvent::new(EventResource::Pod, ActionType::UPDATE_POD_GENERATED_CLAIM),
            ClusterEvent::new(EventResource::DeviceClass, changed),
            ClusterEvent::new(EventResource::ResourceSlice, changed),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        QueueingHint::queue_if(match object {
            EventObject::ResourceClaim(change) => {
                let (Some(new), Ok(claims)) = (&change.new, self.claims_of(pod)) else {
                    return QueueingHint::Skip;
                };
                let is_used = claims.iter().any(|claim| claim.metadata.uid == new.metadata.uid);
                match &change.old {
                    Some(old) if allocation(old).is_some() && allocation(new).is_none() => true,
                    Some(old) => is_used && old.status != new.status,
                    None => is_used,
                }
            }
            EventObject::Pod(change) => {
                change.new.as_ref().is_some_and(|new| new.uid == pod.uid && self.claims_of(new).is_ok())
            }
            _ => true,
        })
    }

    fn hints_by_class(&self) -> bool {
        false
    }
}
