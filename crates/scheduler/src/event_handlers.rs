//! Informer event handlers: feed the cache and the queue, and tell the queue what may have made pods schedulable.

use std::sync::Arc;

use client::{CachedView, ResourceEvent, SharedInformer};
use tokio_util::sync::CancellationToken;

use crate::{
    framework::cluster_event::{
        ActionType, ClusterEvent, EventObject, EventResource, ObjectChange, node_update_events, pod_update_events,
    },
    handle::SchedulerHandle,
    metrics::METRICS,
    queue::pod_change,
    views::node_info::NodeView,
    views::pod_info::PodInfo,
};

/// Handles events for the pods of some scheduler names, until the scheduler stops.
pub struct EventHandlers {
    /// The shared parts of the scheduler.
    pub handle: Arc<SchedulerHandle>,
    /// The scheduler names of the profiles.
    pub profiles: Vec<Arc<str>>,
    /// Cancelled when the scheduler stops; informers may outlive it.
    pub shutdown: CancellationToken,
}

impl EventHandlers {
    /// Adds the handlers to all informers.
    pub fn add_all(self: &Arc<Self>) {
        let objects = &self.handle.objects;
        self.add(&self.handle.nodes.clone(), |this, event| this.handle_node(event));
        self.add(&self.handle.pods.clone(), |this, event| this.handle_pod(event));
        self.add_object(&objects.volumes, EventResource::PersistentVolume, EventObject::PersistentVolume);
        self.add_object(&objects.claims, EventResource::PersistentVolumeClaim, EventObject::PersistentVolumeClaim);
        self.add_object(&objects.storage_classes, EventResource::StorageClass, EventObject::StorageClass);
        self.add_object(&objects.csi_nodes, EventResource::CsiNode, EventObject::CsiNode);
        self.add_object(&objects.csi_drivers, EventResource::CsiDriver, EventObject::CsiDriver);
        self.add_object(&objects.capacities, EventResource::CsiStorageCapacity, EventObject::CsiStorageCapacity);
        self.add_object(&objects.attachments, EventResource::VolumeAttachment, EventObject::VolumeAttachment);
        self.add_object(&objects.resource_claims, EventResource::ResourceClaim, EventObject::ResourceClaim);
        self.add_object(&objects.resource_slices, EventResource::ResourceSlice, EventObject::ResourceSlice);
        self.add_object(objects.device_classes.informer(), EventResource::DeviceClass, EventObject::DeviceClass);
        if let Some(groups) = &objects.pod_groups {
            self.add_object(groups, EventResource::PodGroup, EventObject::PodGroup);
        }
    }

    fn add<K: CachedView>(
        self: &Arc<Self>,
        informer: &SharedInformer<K>,
        handler: impl Fn(&Self, &ResourceEvent<K>) + Send + Sync + 'static,
    ) {
        let this = self.clone();
        informer.add_event_handler(move |event| {
            if !this.shutdown.is_cancelled() {
                handler(&this, event);
            }
        });
    }

    /// Moves pods on every change of a resource.
    fn add_object<K: CachedView>(
        self: &Arc<Self>,
        informer: &SharedInformer<K>,
        resource: EventResource,
        object: fn(ObjectChange<K>) -> EventObject,
    ) {
        self.add(informer, move |this, event| {
            let (change, action) = match event.clone() {
                ResourceEvent::Added(new) => (ObjectChange { old: None, new: Some(new) }, ActionType::ADD),
                ResourceEvent::Updated { old, new } => {
                    (ObjectChange { old: Some(old), new: Some(new) }, ActionType::UPDATE)
                }
                ResourceEvent::Deleted(old) => (ObjectChange { old: Some(old), new: None }, ActionType::DELETE),
            };
            this.handle.queue.move_pods_on_event(ClusterEvent::new(resource, action), object(change), None);
        });
    }

    fn handle_node(&self, event: &ResourceEvent<NodeView>) {
        let (old, new) = match event.clone() {
            ResourceEvent::Added(new) => (None, Some(new)),
            ResourceEvent::Updated { old, new } => (Some(old), Some(new)),
            ResourceEvent::Deleted(old) => (Some(old), None),
        };
        let events = match (&old, &new) {
            (None, _) => vec![ClusterEvent::new(EventResource::Node, ActionType::ADD)],
            (_, None) => vec![ClusterEvent::new(EventResource::Node, ActionType::DELETE)],
            (Some(old), Some(new)) => node_update_events(old, new),
        };
        {
            let mut cache = self.handle.lock_cache();
            match (&old, &new) {
                (_, Some(new)) => drop(cache.set_node(new.clone())),
                (Some(old), None) => cache.remove_node(&old.name),
                (None, None) => {}
            }
            METRICS.set_cache_size(cache.counts());
        }
        for event in events {
            let object = EventObject::Node(ObjectChange { old: old.clone(), new: new.clone() });
            self.handle.queue.move_pods_on_event(event, object, None);
        }
    }

    fn handle_pod(&self, event: &ResourceEvent<PodInfo>) {
        match event {
            ResourceEvent::Added(pod) if is_assigned(pod) => self.add_assigned(pod),
            ResourceEvent::Added(pod) if self.is_responsible(pod) => self.add_waiting(pod),
            ResourceEvent::Updated { old, new } => self.update_pod(old, new),
            ResourceEvent::Deleted(pod) if pod.node_name.is_some() => self.delete_assigned(pod),
            ResourceEvent::Deleted(pod) => self.delete_waiting(pod),
            ResourceEvent::Added(_) => {}
        }
    }

    fn update_pod(&self, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        match (is_assigned(old), is_assigned(new)) {
            (true, false) => self.delete_assigned(old),
            (true, true) => self.update_assigned(old, new),
            (false, true) => {
                self.add_assigned(new);
                if self.is_responsible(old) {
                    self.handle.queue.delete_pod(&old.uid);
                }
            }
            // The pod ended without ever having a node.
            (false, false) if new.is_terminal => self.delete_waiting(old),
            (false, false) if self.is_responsible(old) => self.update_waiting(old, new),
            (false, false) => {}
        }
    }

    fn add_assigned(&self, pod: &Arc<PodInfo>) {
        self.handle.lock_cache().set_pod(pod.clone());
        let object = pod_change(None, Some(pod.clone()));
        self.handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_ADD, object, None);
    }

    fn update_assigned(&self, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        self.handle.lock_cache().set_pod(new.clone());
        for event in pod_update_events(old, new) {
            let object = pod_change(Some(old.clone()), Some(new.clone()));
            self.handle.queue.move_pods_on_event(event, object, None);
        }
    }

    fn delete_assigned(&self, pod: &Arc<PodInfo>) {
        self.handle.lock_cache().remove_pod(pod);
        let object = pod_change(Some(pod.clone()), None);
        self.handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_DELETE, object, None);
    }

    fn add_waiting(&self, pod: &Arc<PodInfo>) {
        self.handle.pod_groups.set_pod(pod);
        self.handle.queue.add_pod(pod.clone());
        if pod.class.pod_group.is_some() {
            // It may complete its gang.
            let object = pod_change(None, Some(pod.clone()));
            self.handle.queue.move_pods_on_event(ClusterEvent::UNSCHEDULED_POD_ADD, object, None);
        }
    }

    fn update_waiting(&self, old: &Arc<PodInfo>, new: &Arc<PodInfo>) {
        self.handle.pod_groups.set_pod(new);
        if self.handle.lock_cache().is_assumed(&new.uid) {
            if new.is_deleting && !old.is_deleting {
                self.delete_assumed(&new.uid);
            }
            return;
        }
        self.handle.queue.update_pod(old, new);
        if old.nominated_node_name.is_some() && old.nominated_node_name != new.nominated_node_name {
            self.release_nomination(old);
        }
    }

    fn delete_waiting(&self, pod: &Arc<PodInfo>) {
        if !self.is_responsible(pod) {
            return;
        }
        self.handle.queue.delete_pod(&pod.uid);
        self.handle.pod_groups.remove_pod(pod);
        if self.handle.lock_cache().is_assumed(&pod.uid) {
            self.delete_assumed(&pod.uid);
        } else if pod.nominated_node_name.is_some() {
            self.release_nomination(pod);
        }
    }

    /// Frees what a pod uses that is deleted between its assumption and its binding, which will fail.
    fn delete_assumed(&self, uid: &str) {
        let Some(assumed) = self.handle.lock_cache().pod(uid) else { return };
        if !self.handle.waiting_pods.reject(uid, "", "pod is being deleted") {
            self.handle.lock_cache().forget_pod(uid);
        }
        let object = pod_change(Some(assumed), None);
        self.handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_DELETE, object, None);
    }

    /// Pods of at most the same priority counted a nominated pod as if it was on its node.
    fn release_nomination(&self, pod: &Arc<PodInfo>) {
        let priority = pod.priority();
        let object = pod_change(Some(pod.clone()), None);
        let is_concerned = |other: &PodInfo| other.priority() <= priority;
        self.handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_DELETE, object, Some(&is_concerned));
    }

    fn is_responsible(&self, pod: &PodInfo) -> bool {
        self.profiles.contains(&pod.class.scheduler_name) && !pod.is_terminal
    }
}

/// Whether the pod occupies a node; one that has ended does not.
fn is_assigned(pod: &PodInfo) -> bool {
    pod.node_name.is_some() && !pod.is_terminal
}
