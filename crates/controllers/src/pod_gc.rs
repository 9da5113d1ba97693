//! pod-garbage-collector-controller: deletes pods of nodes that no longer exist, unscheduled pods that are terminating,
//! and terminated pods above a threshold.

use std::time::Duration;

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
};

/// Number of terminated pods that are retained.
const TERMINATED_POD_THRESHOLD: usize = 12_500;
/// Delay before a pod's missing node counts as deleted.
const QUARANTINE_PERIOD: Duration = Duration::from_secs(40);
/// Index of pods by node name.
const BY_NODE: &str = "node";

struct PodGcController {
    client: Client,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<Pod>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (nodes, pods) = (context.informers.informer_for(), context.informers.informer_for());
    let client = context.client.clone();
    run_controller(&context, |_| PodGcController { client, nodes, pods }).await;
}

impl Controller for PodGcController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        self.pods.add_index(BY_NODE, |pod| assigned_node(pod).map(Into::into).into_iter().collect());
        watches.add(&self.nodes, |this, event, queue| {
            if let ResourceEvent::Deleted(node) = event {
                let pods = this.pods.by_index(BY_NODE, &node.name_any());
                pods.iter().for_each(|pod| queue.add_after(ObjectKey::from_object(pod.as_ref()), QUARANTINE_PERIOD));
            }
        });
        watches.add(&self.pods, |this, event, queue| match event {
            ResourceEvent::Deleted(_) => {}
            ResourceEvent::Added(pod) | ResourceEvent::Updated { new: pod, .. } => match assigned_node(pod) {
                Some(node) if this.nodes.get("", node).is_none() => {
                    queue.add_after(ObjectKey::from_object(pod.as_ref()), QUARANTINE_PERIOD);
                }
                None if pod.metadata.deletion_timestamp.is_some() => queue.add(ObjectKey::from_object(pod.as_ref())),
                Some(_) if is_pod_terminal(pod) => queue.add(ObjectKey::from_object(pod.as_ref())),
                _ => {}
            },
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.sync_pod(key).await
    }
}

impl PodGcController {
    async fn sync_pod(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        let deleted = match assigned_node(&pod) {
            None if pod.metadata.deletion_timestamp.is_some() => self.delete_pod(&pod).await,
            Some(node) if self.check_node_gone(node).await? => self.delete_orphaned_pod(&pod).await,
            _ if is_pod_terminal(&pod) && self.exceeds_threshold(&pod) => self.delete_pod(&pod).await,
            _ => return Ok(RequeueAction::AwaitChange),
        };
        match deleted {
            Ok(()) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }

    async fn check_node_gone(&self, node: &str) -> Result<bool, kube::Error> {
        if self.nodes.get("", node).is_some() {
            return Ok(false);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(api.get_metadata_opt(node).await?.is_none())
    }

    /// Whether this pod is among the oldest terminated pods above the threshold.
    fn exceeds_threshold(&self, pod: &Pod) -> bool {
        let ended: Vec<_> = self.pods.list().into_iter().filter(|pod| is_pod_terminal(pod)).collect();
        let age = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let older = ended.iter().filter(|other| age(other) < age(pod)).count();
        ended.len() > TERMINATED_POD_THRESHOLD && older < ended.len() - TERMINATED_POD_THRESHOLD
    }

    /// Marks the pod as failed, since its kubelet is gone, and deletes it.
    async fn delete_orphaned_pod(&self, pod: &Pod) -> Result<(), kube::Error> {
        if !is_pod_terminal(pod) {
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists"});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed", "conditions": [condition]}});
            self.pod_api(pod).patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        self.delete_pod(pod).await
    }

    async fn delete_pod(&self, pod: &Pod) -> Result<(), kube::Error> {
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), ..Default::default() };
        let now = DeleteParams::default().grace_period(0).preconditions(this_one);
        self.pod_api(pod).delete(&pod.name_any(), &now).await.map(drop)
    }

    fn pod_api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""))
    }
}

fn assigned_node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}
