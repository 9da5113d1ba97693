//! taint-eviction-controller: deletes pods from nodes with `NoExecute` taints that they do not tolerate, at once or
//! after `tolerationSeconds`.
//!
//! The time of a toleration runs from the moment at which this controller observed the taint.

mod eviction_delay;

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use self::eviction_delay::{EvictionDelay, eviction_delay, no_execute_taints};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    object_key::ObjectKey,
    pod_disruption,
    pod_node::{index_pods_by_node, pods_on_node},
    pod_view::PodView,
};

struct TaintEvictionController {
    client: Client,
    nodes: SharedInformer<Node>,
    pods: SharedInformer<PodView>,
    recorder: EventRecorder,
    /// Pods to evict later, with the time.
    scheduled: Mutex<HashMap<ObjectKey, Instant>>,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| TaintEvictionController {
        nodes: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        recorder: EventRecorder::new(context.client.clone(), "taint-eviction-controller", None),
        scheduled: Mutex::default(),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for TaintEvictionController {
    type Key = ObjectKey;
    type Error = kube::Error;
    const WORKERS: usize = 8;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        index_pods_by_node(&self.pods);
        watches.add(&self.nodes, Self::handle_node_event);
        watches.add(&self.pods, |_, event, queue| {
            let relevant =
                |pod: &PodView| pod.spec.as_ref().map(|spec| (spec.node_name.clone(), spec.tolerations.clone()));
            let is_same = matches!(event, ResourceEvent::Updated { old, new } if relevant(old) == relevant(new));
            if !is_same {
                queue.add(ObjectKey::from_object(event.object().as_ref()));
            }
        });
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.sync_pod(key).await
    }
}

impl TaintEvictionController {
    fn handle_node_event(&self, event: &ResourceEvent<Node>, queue: &WorkQueue<ObjectKey>) {
        let is_relevant = match event {
            ResourceEvent::Added(node) => !no_execute_taints(node).is_empty(),
            ResourceEvent::Updated { old, new } => no_execute_taints(old) != no_execute_taints(new),
            ResourceEvent::Deleted(_) => false,
        };
        if is_relevant {
            for pod in pods_on_node(&self.pods, &event.object().name_any()) {
                queue.add(ObjectKey::from_object(pod.as_ref()));
            }
        }
    }

    async fn sync_pod(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        let pod = self.pods.get(&key.namespace, &key.name);
        let Some(spec) = pod.as_ref().and_then(|pod| pod.spec.as_ref()) else {
            self.cancel_eviction(key);
            return Ok(RequeueAction::AwaitChange);
        };
        let Some(node) = self.nodes.get("", spec.node_name.as_deref().unwrap_or_default()) else {
            // A scheduled eviction of a deleted node's pod proceeds.
            return match self.scheduled_at(key) {
                Some(at) if at > Instant::now() => Ok(RequeueAction::After(at - Instant::now())),
                Some(_) => self.evict_pod(key).await,
                None => Ok(RequeueAction::AwaitChange),
            };
        };
        match eviction_delay(&no_execute_taints(&node), spec.tolerations.as_deref().unwrap_or_default()) {
            EvictionDelay::Never => {
                self.cancel_eviction(key);
                Ok(RequeueAction::AwaitChange)
            }
            EvictionDelay::None => {
                self.cancel_eviction(key);
                self.evict_pod(key).await
            }
            EvictionDelay::After(delay) => {
                let now = Instant::now();
                let at = *self.lock_scheduled().entry(key.clone()).or_insert(now + delay);
                match at > now {
                    true => Ok(RequeueAction::After(at - now)),
                    false => self.evict_pod(key).await,
                }
            }
        }
    }

    fn cancel_eviction(&self, key: &ObjectKey) {
        if self.lock_scheduled().remove(key).is_some() {
            self.record_event(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn evict_pod(&self, key: &ObjectKey) -> Result<RequeueAction, kube::Error> {
        self.lock_scheduled().remove(key);
        self.record_event(key, format!("Marking for deletion Pod {key}"));
        let api: Api<PodView> = Api::namespaced(self.client.clone(), &key.namespace);
        let deleted = async {
            let pod = api.get(&key.name).await?;
            let message = "Taint manager: deleting due to NoExecute taint";
            let now = Timestamp::now();
            if let Some(condition) = pod_disruption::disruption_target(&pod, "DeletionByTaintManager", message, now) {
                let patch = Patch::Strategic(pod_disruption::status_patch(&pod, json!({"conditions": [condition]})));
                api.patch_status(&key.name, &PatchParams::default(), &patch).await?;
            }
            api.delete(&key.name, &DeleteParams::default()).await
        };
        match deleted.await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(RequeueAction::AwaitChange),
        }
    }

    fn record_event(&self, key: &ObjectKey, message: String) {
        let regarding = ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(key.namespace.clone()),
            name: Some(key.name.clone()),
            ..Default::default()
        };
        self.recorder.record_normal(regarding, "TaintManagerEviction", message);
    }

    fn scheduled_at(&self, key: &ObjectKey) -> Option<Instant> {
        self.lock_scheduled().get(key).copied()
    }

    fn lock_scheduled(&self) -> MutexGuard<'_, HashMap<ObjectKey, Instant>> {
        self.scheduled.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
