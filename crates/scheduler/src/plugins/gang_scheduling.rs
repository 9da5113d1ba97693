//! GangScheduling: pods of a group with a gang policy are scheduled all or none, behind the feature gate of that name.

use std::{sync::Arc, time::Duration};

use client::SharedInformer;
use k8s_openapi::api::scheduling::v1alpha2::PodGroup;

use crate::{
    framework::{
        cluster_event::{ActionType, ClusterEvent, EventObject, EventResource, QueueingHint},
        cycle_state::CycleState,
        extension_points::{EnqueueExtensions, PermitPlugin, PermitResult, Plugin, PreEnqueuePlugin},
        status::Status,
    },
    handle::SchedulerHandle,
    views::pod_info::PodInfo,
};

/// The longest wait of a pod for the rest of its gang.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Number of pods of the group that the current pod group cycle has placed on its snapshot, the pod itself included.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedPlacements(pub usize);

/// The plug-in.
pub struct GangScheduling {
    handle: Arc<SchedulerHandle>,
    groups: Option<SharedInformer<PodGroup>>,
}

impl GangScheduling {
    /// Creates the plug-in.
    pub fn new(handle: Arc<SchedulerHandle>) -> Self {
        Self { groups: handle.objects.pod_groups.clone(), handle }
    }

    /// Returns the pod's group; `None` if it is not there.
    fn pod_group(&self, pod: &PodInfo) -> Option<Arc<PodGroup>> {
        self.groups.as_ref()?.get(&pod.class.namespace, pod.class.pod_group.as_ref()?)
    }
}

/// Returns how many pods of a gang must be schedulable together; `None` for groups with another policy.
fn min_count(group: &PodGroup) -> Option<usize> {
    let gang = group.spec.scheduling_policy.gang.as_ref()?;
    Some(usize::try_from(gang.min_count).unwrap_or(0))
}

impl Plugin for GangScheduling {
    fn name(&self) -> &'static str {
        "GangScheduling"
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueuePlugin> {
        Some(self)
    }

    fn as_enqueue_extensions(&self) -> Option<&dyn EnqueueExtensions> {
        Some(self)
    }

    fn as_permit(&self) -> Option<&dyn PermitPlugin> {
        Some(self)
    }
}

impl PreEnqueuePlugin for GangScheduling {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Status> {
        let Some(name) = &pod.class.pod_group else { return Ok(()) };
        let Some(group) = self.pod_group(pod) else {
            let message = format!("waiting for pods's pod group {name:?} to appear in scheduling queue");
            return Err(Status::unresolvable(message));
        };
        let known = self.handle.pod_groups.members_of_group(pod).all;
        match min_count(&group) {
            Some(wanted) if known < wanted => {
                Err(Status::unresolvable("waiting for minCount pods from a gang to appear in scheduling queue"))
            }
            _ => Ok(()),
        }
    }
}

impl EnqueueExtensions for GangScheduling {
    fn events_to_register(&self) -> Vec<ClusterEvent> {
        vec![
            ClusterEvent::new(EventResource::Pod, ActionType::ADD),
            ClusterEvent::new(EventResource::PodGroup, ActionType::ADD),
        ]
    }

    fn hint(&self, _event: ClusterEvent, pod: &PodInfo, object: &EventObject) -> QueueingHint {
        let Some(name) = &pod.class.pod_group else { return QueueingHint::Skip };
        QueueingHint::queue_if(match object {
            EventObject::Pod(change) => change.new.as_ref().is_some_and(|added| {
                added.class.namespace == pod.class.namespace && added.class.pod_group.as_ref() == Some(name)
            }),
            EventObject::PodGroup(change) => change.new.as_ref().is_some_and(|added| {
                let metadata = &added.metadata;
                metadata.namespace.as_deref() == Some(&*pod.class.namespace)
                    && metadata.name.as_deref() == Some(&**name)
            }),
            _ => false,
        })
    }
}

impl PermitPlugin for GangScheduling {
    fn permit(&self, state: &CycleState, pod: &Arc<PodInfo>, _node: &Arc<str>) -> Result<PermitResult, Status> {
        let Some(name) = &pod.class.pod_group else { return Ok(PermitResult::Allow) };
        let Some(group) = self.pod_group(pod) else {
            let namespace = &pod.class.namespace;
            return Err(Status::error(format!(
                "failed to get podGroup {namespace}/{name}: podgroup.scheduling.k8s.io {name:?} not found"
            )));
        };
        let Some(wanted) = min_count(&group) else { return Ok(PermitResult::Allow) };
        let members = self.handle.pod_groups.members_of_group(pod);
        let simulated = state.get::<SimulatedPlacements>().map_or(0, |placements| placements.0);
        if members.scheduled() + simulated < wanted {
            // They may wait for this pod.
            self.handle.queue.activate(&members.unscheduled);
            let reason = "waiting for minCount pods from a gang to be scheduled";
            return Ok(PermitResult::Wait { timeout: PERMIT_TIMEOUT, reason });
        }
        members.assumed.iter().for_each(|uid| self.handle.waiting_pods.allow(uid, self.name()));
        Ok(PermitResult::Allow)
    }
}
