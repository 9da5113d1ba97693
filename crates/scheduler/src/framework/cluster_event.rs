//! Changes in the cluster that may make a pod schedulable, and the hints of plug-ins about them.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    scheduling::v1alpha2::PodGroup,
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};

use crate::{views::node_info::NodeView, views::pod_info::PodInfo};

/// The resource that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventResource {
    /// Any pod; only for registration.
    Pod,
    /// A pod on a node, or one that counts as if it was.
    AssignedPod,
    /// A pod that waits for a node.
    UnscheduledPod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    PodGroup,
    /// Everything: what ends the longest wait in the unschedulable pool.
    WildCard,
}

impl EventResource {
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::AssignedPod => "AssignedPod",
            Self::UnscheduledPod => "UnschedulablePod",
            Self::Node => "Node",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::StorageClass => "storage.k8s.io/StorageClass",
            Self::CsiNode => "storage.k8s.io/CSINode",
            Self::CsiDriver => "storage.k8s.io/CSIDriver",
            Self::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Self::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Self::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Self::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Self::DeviceClass => "resource.k8s.io/DeviceClass",
            Self::PodGroup => "scheduling.k8s.io/PodGroup",
            Self::WildCard => "*",
        }
    }
}

/// Action on the resource: a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActionType(u16);

impl ActionType {
    pub const ADD: Self = Self(1);
    pub const DELETE: Self = Self(1 << 1);
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    pub const UPDATE_NODE_DECLARED_FEATURE: Self = Self(1 << 5);
    pub const UPDATE_POD_LABEL: Self = Self(1 << 6);
    pub const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 7);
    pub const UPDATE_POD_TOLERATION: Self = Self(1 << 8);
    pub const UPDATE_POD_GATES_ELIMINATED: Self = Self(1 << 9);
    pub const UPDATE_POD_GENERATED_CLAIM: Self = Self(1 << 10);
    /// Any update of a resource without finer events, or of a pod where none of the finer ones applies.
    pub const UPDATE: Self = Self(((1 << 11) - 1) & !0b11);
    pub const ALL: Self = Self((1 << 11) - 1);

    /// Both actions.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn name(self) -> &'static str {
        match self {
            Self::ADD => "Add",
            Self::DELETE => "Delete",
            Self::UPDATE_NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            Self::UPDATE_NODE_LABEL => "UpdateNodeLabel",
            Self::UPDATE_NODE_TAINT => "UpdateNodeTaint",
            Self::UPDATE_NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            Self::UPDATE_POD_LABEL => "UpdatePodLabel",
            Self::UPDATE_POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::UPDATE_POD_TOLERATION => "UpdatePodToleration",
            Self::UPDATE_POD_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            Self::UPDATE_POD_GENERATED_CLAIM => "UpdatePodGeneratedResourceClaim",
            Self::UPDATE => "Update",
            _ => "All",
        }
    }
}

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// The resource.
    pub resource: EventResource,
    /// The action.
    pub action: ActionType,
}

impl ClusterEvent {
    /// A pod was waiting for too long.
    pub const UNSCHEDULABLE_TIMEOUT: Self = Self::new(EventResource::WildCard, ActionType::ALL);
    /// A pod is to be tried whatever it waits for.
    pub const FORCE_ACTIVATE: Self = Self::new(EventResource::WildCard, ActionType::ALL);
    /// A pod without a node was created.
    pub const UNSCHEDULED_POD_ADD: Self = Self::new(EventResource::UnscheduledPod, ActionType::ADD);
    /// A pod was bound.
    pub const ASSIGNED_POD_ADD: Self = Self::new(EventResource::AssignedPod, ActionType::ADD);
    /// A bound or nominated pod is gone.
    pub const ASSIGNED_POD_DELETE: Self = Self::new(EventResource::AssignedPod, ActionType::DELETE);

    /// Creates an event.
    pub const fn new(resource: EventResource, action: ActionType) -> Self {
        Self { resource, action }
    }

    /// The event's name in metrics.
    pub fn label(self) -> String {
        format!("{}{}", self.resource.name(), self.action.name())
    }

    /// Whether the event concerns every pod.
    pub fn is_wild_card(self) -> bool {
        self.resource == EventResource::WildCard && self.action == ActionType::ALL
    }

    /// Whether this registered event covers an event that happened.
    pub fn covers(self, happened: Self) -> bool {
        let resource = self.resource == EventResource::WildCard
            || self.resource == happened.resource
            || self.resource == EventResource::Pod
                && matches!(happened.resource, EventResource::AssignedPod | EventResource::UnscheduledPod);
        let action = self.action.0 & happened.action.0 != 0 && happened.action.0 <= self.action.0;
        self.is_wild_card() || resource && action
    }
}

/// An object before and after its change.
#[derive(Debug)]
pub struct ObjectChange<T> {
    /// Absent if the object was added.
    pub old: Option<Arc<T>>,
    /// Absent if the object was deleted.
    pub new: Option<Arc<T>>,
}

impl<T> Clone for ObjectChange<T> {
    fn clone(&self) -> Self {
        Self { old: self.old.clone(), new: self.new.clone() }
    }
}

/// The object of an event.
#[derive(Clone, Debug)]
pub enum EventObject {
    /// Events without an object.
    Nothing,
    Pod(ObjectChange<PodInfo>),
    Node(ObjectChange<NodeView>),
    PersistentVolume(ObjectChange<PersistentVolume>),
    PersistentVolumeClaim(ObjectChange<PersistentVolumeClaim>),
    StorageClass(ObjectChange<StorageClass>),
    CsiNode(ObjectChange<CSINode>),
    CsiDriver(ObjectChange<CSIDriver>),
    CsiStorageCapacity(ObjectChange<CSIStorageCapacity>),
    VolumeAttachment(ObjectChange<VolumeAttachment>),
    ResourceClaim(ObjectChange<ResourceClaim>),
    ResourceSlice(ObjectChange<ResourceSlice>),
    DeviceClass(ObjectChange<DeviceClass>),
    PodGroup(ObjectChange<PodGroup>),
}

/// A plug-in's opinion on whether an event may make a pod schedulable that it rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// The event does not help.
    Skip,
    /// The pod is worth another try.
    Queue,
}

impl QueueingHint {
    /// [`QueueingHint::Queue`] if the condition holds.
    pub fn queue_if(condition: bool) -> Self {
        if condition { Self::Queue } else { Self::Skip }
    }
}

/// Returns the finer events of an update of a pod.
pub fn pod_update_events(old: &PodInfo, new: &PodInfo) -> Vec<ClusterEvent> {
    let resource = if new.node_name.is_some() { EventResource::AssignedPod } else { EventResource::UnscheduledPod };
    let (before, after) = (&old.class, &new.class);
    let gates_gone = after.scheduling_gates.is_empty() && !before.scheduling_gates.is_empty();
    let claims_changed = old.claim_statuses != new.claim_statuses || old.extended_claim != new.extended_claim;
    let changes = [
        (before.labels != after.labels, ActionType::UPDATE_POD_LABEL),
        (is_scaled_down(old, new), ActionType::UPDATE_POD_SCALE_DOWN),
        (gates_gone, ActionType::UPDATE_POD_GATES_ELIMINATED),
        (before.tolerations.len() != after.tolerations.len(), ActionType::UPDATE_POD_TOLERATION),
        (claims_changed, ActionType::UPDATE_POD_GENERATED_CLAIM),
    ];
    let mut events: Vec<ClusterEvent> = changes
        .into_iter()
        .filter(|(changed, _)| *changed)
        .map(|(_, action)| ClusterEvent::new(resource, action))
        .collect();
    if events.is_empty() {
        events.push(ClusterEvent::new(resource, ActionType::UPDATE));
    }
    events
}

fn is_scaled_down(old: &PodInfo, new: &PodInfo) -> bool {
    let (old, new) = (&old.class.requests.allocated, &new.class.requests.allocated);
    old.milli_cpu > new.milli_cpu
        || old.memory > new.memory
        || old.ephemeral_storage > new.ephemeral_storage
        || old.scalars.iter().any(|(name, amount)| *amount > new.scalar(name))
}

/// Returns the events of an update of a node; most updates are heartbeats and have none.
pub fn node_update_events(old: &NodeView, new: &NodeView) -> Vec<ClusterEvent> {
    let changes = [
        (old.is_unschedulable && !new.is_unschedulable, ActionType::UPDATE_NODE_TAINT),
        (old.allocatable != new.allocatable, ActionType::UPDATE_NODE_ALLOCATABLE),
        (old.labels != new.labels, ActionType::UPDATE_NODE_LABEL),
        (old.taints != new.taints, ActionType::UPDATE_NODE_TAINT),
        (old.declared_features != new.declared_features, ActionType::UPDATE_NODE_DECLARED_FEATURE),
    ];
    let changed = changes.into_iter().filter(|(changed, _)| *changed);
    changed.map(|(_, action)| ClusterEvent::new(EventResource::Node, action)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(registered: (EventResource, ActionType), happened: (EventResource, ActionType), expected: bool) {
        let covers = ClusterEvent::new(registered.0, registered.1).covers(ClusterEvent::new(happened.0, happened.1));
        assert_eq!(covers, expected, "{registered:?} {happened:?}");
    }

    #[test]
    fn registered_events_cover_what_happens() {
        use EventResource::{AssignedPod, Node, Pod, UnscheduledPod};
        check((Pod, ActionType::DELETE), (AssignedPod, ActionType::DELETE), true);
        check((AssignedPod, ActionType::DELETE), (UnscheduledPod, ActionType::DELETE), false);
        check((Node, ActionType::ADD.or(ActionType::UPDATE_NODE_LABEL)), (Node, ActionType::UPDATE_NODE_LABEL), true);
        check((Node, ActionType::ADD), (Node, ActionType::UPDATE_NODE_LABEL), false);
        check((Pod, ActionType::UPDATE), (UnscheduledPod, ActionType::UPDATE), true);
        check((Pod, ActionType::UPDATE_POD_LABEL), (UnscheduledPod, ActionType::UPDATE), false);
        assert!(ClusterEvent::UNSCHEDULABLE_TIMEOUT.is_wild_card());
        assert_eq!(ClusterEvent::ASSIGNED_POD_ADD.label(), "AssignedPodAdd");
    }
}
