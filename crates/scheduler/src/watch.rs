//! What the informers tell: which pods wait, what runs where, and what may help pods that do not fit.

use std::sync::Arc;

use client::Change;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use crate::{
    NAME, Scheduler,
    cache::PodInfo,
    queue::{Event, Waiting},
};

impl Scheduler {
    pub(crate) fn watch(self: &Arc<Self>) {
        let this = self.clone();
        self.nodes.on_change(move |change| this.node_changed(change));
        let this = self.clone();
        self.pods.on_change(move |change| this.pod_changed(change));
    }

    fn node_changed(&self, change: &Change<Node>) {
        let (name, node) = (change.object().name_any(), change.object());
        let matters = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => what_matters(old) != what_matters(new),
            Change::Deleted(_) => {
                self.cache().remove_node(&name);
                return;
            }
        };
        self.cache().set_node(&name, node.clone());
        if matters {
            self.queue.wake(Event::Node);
        }
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let uid = pod.metadata.uid.as_deref().unwrap_or("");
        let is_gone = matches!(change, Change::Deleted(_)) || has_ended(pod);
        match node_of(pod) {
            _ if is_gone => self.forget(uid),
            Some(node) => {
                self.queue.remove(uid);
                self.cache().place(uid, node, PodInfo::new(pod.clone()));
            }
            None if !is_waiting(pod) => self.queue.remove(uid),
            None => match change {
                Change::Updated { old, new } if is_waiting(old) && !is_changed(old, new) => {}
                Change::Updated { .. } => self.queue.pod_changed(waiting(pod)),
                _ => self.queue.add(waiting(pod)),
            },
        }
    }

    fn forget(&self, uid: &str) {
        self.queue.remove(uid);
        if self.cache().remove(uid) {
            self.queue.wake(Event::PodGone);
        }
    }
}

fn waiting(pod: &Pod) -> Waiting {
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
    Waiting::new(namespace, &pod.name_any(), pod.metadata.uid.as_deref().unwrap_or(""), priority)
}

/// The node that the pod is bound to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}

/// Whether the pod's containers have all ended for good.
fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Whether this scheduler should find a node for the pod now.
pub(crate) fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    node_of(pod).is_none()
        && spec.scheduler_name.as_deref().is_none_or(|name| name == NAME || name.is_empty())
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && pod.metadata.deletion_timestamp.is_none()
        && !has_ended(pod)
}

/// A change of the status alone, such as our own report of failure, is no reason to try again.
fn is_changed(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels != new.metadata.labels || old.spec != new.spec
}

/// What of a node decides whether pods fit.
fn what_matters(node: &Node) -> impl PartialEq {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let conditions: Vec<_> = conditions.into_iter().flatten().map(|c| (c.type_.clone(), c.status.clone())).collect();
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.clone());
    let spec = node.spec.as_ref().map(|spec| (spec.taints.clone(), spec.unschedulable));
    (node.metadata.labels.clone(), spec, allocatable, conditions)
}
