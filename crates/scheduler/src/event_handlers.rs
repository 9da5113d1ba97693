//! Informer event handlers: update the cache and the scheduling queue.

use std::sync::Arc;

use client::ResourceEvent;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use crate::{
    DEFAULT_SCHEDULER_NAME, Scheduler,
    cache::PodInfo,
    scheduling_queue::{ClusterEvent, QueuedPodInfo},
};

impl Scheduler {
    /// Feeds the cache and the queue from the informers until this scheduler stops.
    pub(crate) fn add_event_handlers(self: &Arc<Self>) {
        let this = self.clone();
        self.nodes.add_event_handler(move |event| {
            if !this.shutdown.is_cancelled() {
                this.handle_node_event(event);
            }
        });
        let this = self.clone();
        self.pods.add_event_handler(move |event| {
            if !this.shutdown.is_cancelled() {
                this.handle_pod_event(event);
            }
        });
    }

    fn handle_node_event(&self, event: &ResourceEvent<Node>) {
        let (name, node) = (event.object().name_any(), event.object());
        let matters = match event {
            ResourceEvent::Added(_) => true,
            ResourceEvent::Updated { old, new } => scheduling_properties(old) != scheduling_properties(new),
            ResourceEvent::Deleted(_) => {
                self.lock_cache().remove_node(&name);
                return;
            }
        };
        self.lock_cache().set_node(&name, node.clone());
        if matters {
            self.queue.move_pods_on_event(ClusterEvent::NodeChanged);
        }
    }

    fn handle_pod_event(&self, event: &ResourceEvent<Pod>) {
        let pod = event.object();
        let uid = pod.metadata.uid.as_deref().unwrap_or("");
        let is_gone = matches!(event, ResourceEvent::Deleted(_)) || is_pod_terminal(pod);
        match assigned_node(pod) {
            _ if is_gone => self.forget_pod(uid),
            Some(node) => {
                self.queue.delete_pod(uid);
                self.lock_cache().add_pod(uid, node, PodInfo::new(pod.clone()));
            }
            None if !needs_scheduling(pod) => self.queue.delete_pod(uid),
            None => match event {
                ResourceEvent::Updated { old, new } if needs_scheduling(old) && !is_scheduling_update(old, new) => {}
                ResourceEvent::Updated { .. } => self.queue.update_pod(queued_pod_info(pod)),
                _ => self.queue.add_pod(queued_pod_info(pod)),
            },
        }
    }

    fn forget_pod(&self, uid: &str) {
        self.queue.delete_pod(uid);
        if self.lock_cache().remove_pod(uid) {
            self.queue.move_pods_on_event(ClusterEvent::PodDeleted);
        }
    }
}

fn queued_pod_info(pod: &Pod) -> QueuedPodInfo {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
    QueuedPodInfo::new(namespace, &pod.name_any(), pod.metadata.uid.as_deref().unwrap_or(""), priority)
}

/// Returns the node that the pod is bound to.
pub(crate) fn assigned_node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// Whether the pod's phase is terminal.
fn is_pod_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether this scheduler is to find a node for the pod now.
pub(crate) fn needs_scheduling(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    assigned_node(pod).is_none()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == DEFAULT_SCHEDULER_NAME || name.is_empty())
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && !is_pod_terminal(pod)
}

/// Whether an update affects scheduling; status updates, such as our own condition, do not.
fn is_scheduling_update(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels != new.metadata.labels || old.spec != new.spec
}

/// Returns the properties of a node that decide whether pods fit.
fn scheduling_properties(node: &Node) -> impl PartialEq {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let conditions: Vec<_> = conditions.into_iter().flatten().map(|c| (c.type_.clone(), c.status.clone())).collect();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone());
    let spec = node.spec.as_ref().map(|spec| (spec.taints.clone(), spec.unschedulable));
    (node.metadata.labels.clone(), spec, allocatable, conditions)
}
