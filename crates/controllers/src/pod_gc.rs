//! pod-garbage-collector-controller: deletes pods of nodes that no longer exist or are out of service, unscheduled pods
//! that are terminating, and the oldest terminated pods above a threshold.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use client::{ApiErrorExt, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    node_readiness::is_node_ready,
    object_key::ObjectKey,
    pod_availability::{is_pod_terminal, pod_phase},
    pod_disruption,
    pod_node::{assigned_node, index_pods_by_node, pods_on_node},
    pod_view::PodView,
};

/// Delay between the end of a pod and the check of the threshold; ended pods in between are checked together.
const GC_CHECK_PERIOD: Duration = Duration::from_secs(20);
/// Delay before a pod's missing node counts as deleted.
const QUARANTINE_PERIOD: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE_TAINT: &str = "node.kubernetes.io/out-of-service";
/// Index of terminated pods, under the value `""`.
const TERMINATED: &str = "terminated";

struct PodGcController {
    client: Client,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<PodView>,
    /// Number of terminated pods that are kept; `None` keeps all.
    terminated_threshold: Option<usize>,
}

/// The unit of work: a pod, or all terminated pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PodGcWork {
    Pod(ObjectKey),
    Terminated,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (nodes, pods) = (context.informers.informer_for(), context.informers.informer_for());
    let client = context.client.clone();
    let threshold = usize::try_from(context.options.terminated_pod_gc_threshold).ok().filter(|count| *count > 0);
    let build = |_| PodGcController { client, nodes, pods, terminated_threshold: threshold };
    run_controller(&context, build).await;
}

impl Controller for PodGcController {
    type Key = PodGcWork;
    type Error = kube::Error;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_node(&self.pods);
        self.pods.add_index(TERMINATED, |pod| is_pod_terminated(pod).then(String::new).into_iter().collect());
        watches.add(&self.nodes, Self::handle_node_event);
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn sync(&self, work: &PodGcWork) -> Result<RequeueAction, kube::Error> {
        match work {
            PodGcWork::Pod(key) => self.sync_pod(key).await,
            PodGcWork::Terminated => self.collect_terminated().await,
        }
    }
}

impl PodGcController {
    fn handle_node_event(&self, event: &ResourceEvent<Node>, queue: &WorkQueue<PodGcWork>) {
        let delay = match event {
            ResourceEvent::Deleted(_) => QUARANTINE_PERIOD,
            ResourceEvent::Added(node) | ResourceEvent::Updated { new: node, .. } if is_out_of_service(node) => {
                Duration::ZERO
            }
            _ => return,
        };
        for pod in pods_on_node(&self.pods, &event.object().name_any()) {
            queue.add_after(PodGcWork::Pod(ObjectKey::from_object(pod.as_ref())), delay);
        }
    }

    fn handle_pod_event(&self, event: &ResourceEvent<PodView>, queue: &WorkQueue<PodGcWork>) {
        let (ResourceEvent::Added(pod) | ResourceEvent::Updated { new: pod, .. }) = event else { return };
        let work = PodGcWork::Pod(ObjectKey::from_object(pod.as_ref()));
        if self.terminated_threshold.is_some() && is_pod_terminated(pod) {
            queue.add_after(PodGcWork::Terminated, GC_CHECK_PERIOD);
        }
        match assigned_node(pod) {
            Some(node) if self.nodes.get("", node).is_none() => queue.add_after(work, QUARANTINE_PERIOD),
            _ if pod.metadata.deletion_timestamp.is_some() => queue.add(work),
            _ => {}
        }
    }

    async fn sync_pod(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(RequeueAction::AwaitChange) };
        let is_terminating = pod.metadata.deletion_timestamp.is_some();
        let Some(name) = assigned_node(&pod) else {
            return if is_terminating { self.delete_pod(&pod, false).await } else { Ok(RequeueAction::AwaitChange) };
        };
        match self.nodes.get("", name) {
            Some(node) if is_terminating && is_out_of_service(&node) => self.delete_pod(&pod, false).await,
            Some(_) => Ok(RequeueAction::AwaitChange),
            None => {
                let api: Api<Node> = Api::all(self.client.clone());
                match api.get_metadata_opt(name).await? {
                    Some(_) => Ok(RequeueAction::AwaitChange),
                    None => self.delete_pod(&pod, true).await,
                }
            }
        }
    }

    async fn collect_terminated(&self) -> Result<RequeueAction, kube::Error> {
        let Some(threshold) = self.terminated_threshold else { return Ok(RequeueAction::AwaitChange) };
        for pod in pods_above_threshold(self.pods.by_index(TERMINATED, ""), threshold) {
            self.delete_pod(&pod, false).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }

    /// Marks the pod as failed, since no kubelet does, and deletes it at once.
    async fn delete_pod(&self, pod: &PodView, node_deleted: bool) -> Result<RequeueAction, kube::Error> {
        let api: Api<PodView> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        let deleted = async {
            if !is_pod_terminal(pod) {
                let mut status = json!({"phase": "Failed", "observedGeneration": pod.metadata.generation});
                if node_deleted {
                    let (reason, message) = ("DeletionByPodGC", "PodGC: node no longer exists");
                    let condition = pod_disruption::disruption_target(pod, reason, message, Timestamp::now());
                    status["conditions"] = json!(condition.into_iter().collect::<Vec<_>>());
                }
                let patch = Patch::Strategic(pod_disruption::status_patch(pod, status));
                api.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
            }
            api.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await
        };
        match deleted.await {
            Ok(_) => Ok(RequeueAction::AwaitChange),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(RequeueAction::AwaitChange),
            Err(error) => Err(error),
        }
    }
}

fn is_pod_terminated(pod: &PodView) -> bool {
    !matches!(pod_phase(pod), "Pending" | "Running" | "Unknown")
}

/// Whether the node is not ready and has the out-of-service taint.
fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    !is_node_ready(node) && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE_TAINT)
}

/// Returns the pods to delete: evicted ones first, then the oldest.
fn pods_above_threshold(mut pods: Vec<Arc<PodView>>, threshold: usize) -> Vec<Arc<PodView>> {
    let is_evicted = |pod: &PodView| pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
    let excess = pods.len().saturating_sub(threshold);
    if excess > 0 {
        pods.sort_by_cached_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (Reverse(is_evicted(pod) && pod_phase(pod) == "Failed"), created, pod.name_any())
        });
    }
    pods.truncate(excess);
    pods
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_and_then_oldest_pods_above_the_threshold_are_deleted() {
        let pod = |name: &str, created: &str, reason: &str| -> Arc<PodView> {
            let pod = json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"phase": "Failed", "reason": reason}});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let pods = vec![
            pod("new", "2026-01-03T00:00:00Z", ""),
            pod("old-b", "2026-01-01T00:00:00Z", ""),
            pod("evicted", "2026-01-04T00:00:00Z", "Evicted"),
            pod("old-a", "2026-01-01T00:00:00Z", ""),
        ];
        let names = |threshold| -> Vec<String> {
            pods_above_threshold(pods.clone(), threshold).iter().map(|pod| pod.name_any()).collect()
        };
        assert_eq!(names(1), ["evicted", "old-a", "old-b"]);
        assert_eq!(names(3), ["evicted"]);
        assert!(names(4).is_empty());
    }

    #[test]
    fn only_tainted_nodes_that_are_not_ready_are_out_of_service() {
        let node = |ready: &str, taint: &str| -> Node {
            let conditions = json!([{"type": "Ready", "status": ready}]);
            let taints = json!([{"key": taint, "effect": "NoExecute"}]);
            serde_json::from_value(json!({"spec": {"taints": taints}, "status": {"conditions": conditions}})).unwrap()
        };
        assert!(is_out_of_service(&node("Unknown", OUT_OF_SERVICE_TAINT)));
        assert!(!is_out_of_service(&node("True", OUT_OF_SERVICE_TAINT)));
        assert!(!is_out_of_service(&node("False", "other")));
    }
}
