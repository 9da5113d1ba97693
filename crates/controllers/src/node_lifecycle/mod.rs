//! node-lifecycle-controller: marks silent nodes unknown, taints nodes by their conditions, and marks the pods of
//! unready nodes as not ready.
//!
//! `NoExecute` taints, by which pods are evicted, are added at a rate per zone; none is added while no node of the
//! cluster is ready.

mod health;
mod monitor;
mod taints;
mod zones;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::watcher,
};
use serde_json::json;

use self::{health::NodeHealth, taints::TaintChange, zones::Zones};
use crate::{
    ControllerContext, NodeLifecycleOptions,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_node::{assigned_node, index_pods_by_node},
    pod_view::PodView,
};

const NODE_LEASE_NAMESPACE: &str = "kube-node-lease";
/// Attempts to change the taints of a node after conflicts.
const TAINT_ATTEMPTS: usize = 5;

struct NodeLifecycleController {
    client: Client,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<PodView>,
    leases: SharedInformer<Lease>,
    recorder: EventRecorder,
    options: NodeLifecycleOptions,
    /// The last observation of each node.
    health: Mutex<HashMap<String, NodeHealth>>,
    zones: Mutex<Zones>,
}

/// The unit of work: a node's `NoSchedule` taints and labels, or a pod that was assigned to a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum NodeWork {
    Node(String),
    Pod(ObjectKey),
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let leases = Api::namespaced(context.informers.client().clone(), NODE_LEASE_NAMESPACE);
    let build = |_| NodeLifecycleController {
        nodes: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        leases: SharedInformer::start(leases, watcher::Config::default(), context.shutdown.clone()),
        recorder: EventRecorder::new(context.client.clone(), "node-controller", None),
        options: context.options.node_lifecycle.clone(),
        health: Mutex::default(),
        zones: Mutex::default(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for NodeLifecycleController {
    type Key = NodeWork;
    type Error = kube::Error;
    const WORKERS: usize = 8;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_node(&self.pods);
        watches.require_cache(&self.leases);
        watches.add(&self.nodes, |this, event, queue| {
            let name = event.object().name_any();
            match event {
                ResourceEvent::Deleted(_) => drop(this.lock_health().remove(&name)),
                _ => queue.add(NodeWork::Node(name)),
            }
        });
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn run_in_background(self: &Arc<Self>) {
        self.monitor_nodes().await;
    }

    async fn sync(&self, work: &NodeWork) -> Result<RequeueAction, kube::Error> {
        let synced = match work {
            NodeWork::Node(name) => self.sync_node(name).await,
            NodeWork::Pod(key) => self.sync_pod(key).await,
        };
        match synced {
            Ok(()) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(error) if error.is_not_found() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }
}

impl NodeLifecycleController {
    fn handle_pod_event(&self, event: &ResourceEvent<PodView>, queue: &WorkQueue<NodeWork>) {
        let is_assigned = match event {
            ResourceEvent::Added(pod) => assigned_node(pod).is_some(),
            ResourceEvent::Updated { old, new } => {
                assigned_node(new).is_some() && assigned_node(old) != assigned_node(new)
            }
            ResourceEvent::Deleted(_) => false,
        };
        if is_assigned {
            queue.add(NodeWork::Pod(ObjectKey::from_object(event.object().as_ref())));
        }
    }

    async fn sync_node(&self, name: &str) -> Result<(), kube::Error> {
        let Some(node) = self.nodes.get("", name) else { return Ok(()) };
        self.change_taints(&node, &TaintChange::no_schedule(&node)).await?;
        let labels = taints::labels_to_update(&node);
        if labels.is_empty() {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"metadata": {"labels": labels}}));
        let api: Api<Node> = Api::all(self.client.clone());
        api.patch_metadata(name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Marks a pod as not ready that was assigned to a node that is not ready.
    async fn sync_pod(&self, key: &ObjectKey) -> Result<(), kube::Error> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(()) };
        let Some(node) = assigned_node(&pod) else { return Ok(()) };
        let ready = self.lock_health().get(node).and_then(|health| health.ready.clone());
        match ready.is_some_and(|ready| ready.status != "True") {
            true => self.mark_pod_not_ready(&pod).await,
            false => Ok(()),
        }
    }

    /// Sets the pod's condition `Ready` to false if it is present and true.
    async fn mark_pod_not_ready(&self, pod: &PodView) -> Result<(), kube::Error> {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if !conditions.any(|condition| condition.type_ == "Ready" && condition.status != "False") {
            return Ok(());
        }
        let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(Timestamp::now())});
        let metadata = json!({"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version});
        let patch = Patch::Strategic(json!({"metadata": metadata, "status": {"conditions": [ready]}}));
        let api: Api<PodView> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        match api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await {
            Err(error) if error.is_not_found() => return Ok(()),
            result => result?,
        };
        self.recorder.record_warning(pod.object_ref(&()), "NodeNotReady", "Node is not ready");
        Ok(())
    }

    /// Changes the taints of the cached node, or of the current one after a conflict.
    async fn change_taints(&self, cached: &Node, change: &TaintChange) -> Result<(), kube::Error> {
        let api: Api<Node> = Api::all(self.client.clone());
        let name = cached.name_any();
        let mut taints = change.apply(cached, Timestamp::now()).map(|taints| (taints, cached.resource_version()));
        for attempt in 1.. {
            let Some((new, version)) = taints else { return Ok(()) };
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": new}});
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(error) if error.is_conflict() && attempt < TAINT_ATTEMPTS => {}
                result => return result.map(drop),
            }
            let live = api.get(&name).await?;
            taints = change.apply(&live, Timestamp::now()).map(|taints| (taints, live.resource_version()));
        }
        Ok(())
    }

    fn lock_health(&self) -> MutexGuard<'_, HashMap<String, NodeHealth>> {
        self.health.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn lock_zones(&self) -> MutexGuard<'_, Zones> {
        self.zones.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
