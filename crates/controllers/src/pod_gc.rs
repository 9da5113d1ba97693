//! Pods that nobody else will clean up: those of nodes that no longer exist, those deleted before they had a node, and
//! ended ones when there are too many.

use std::{sync::Arc, time::Duration};

use client::{ApiErrorExt, Change, Informer, Queue, Requeue};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;

use crate::{Context, availability::is_terminal, key::Key};

/// How many ended pods may stay.
const ENDED_LIMIT: usize = 12_500;
/// A node that is not in the cache may be about to appear there.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Pods by the name of their node.
const BY_NODE: &str = "node";

struct Controller {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller {
        nodes: context.informers.of(),
        pods: context.informers.of(),
        queue: Queue::new(),
        client: context.client,
    });
    controller.nodes.synced().await;
    controller.watch();
    controller.pods.synced().await;
    let worker = controller.clone();
    let sync = move |key: Key| {
        let controller = worker.clone();
        async move { controller.sync(&key).await }
    };
    controller.queue.run(2, context.shutdown, sync).await;
}

impl Controller {
    fn watch(self: &Arc<Self>) {
        self.pods.add_index(BY_NODE, |pod| node_of(pod).map(Into::into).into_iter().collect());
        let this = self.clone();
        self.pods.on_change(move |change| match change {
            Change::Deleted(_) => {}
            Change::Added(pod) | Change::Updated { new: pod, .. } => match node_of(pod) {
                Some(node) if this.nodes.get("", node).is_none() => {
                    this.queue.add_after(Key::of(pod.as_ref()), QUARANTINE)
                }
                None if pod.metadata.deletion_timestamp.is_some() => this.queue.add(Key::of(pod.as_ref())),
                Some(_) if is_terminal(pod) => this.queue.add(Key::of(pod.as_ref())),
                _ => {}
            },
        });
        let this = self.clone();
        self.nodes.on_change(move |change| {
            if let Change::Deleted(node) = change {
                let pods = this.pods.by_index(BY_NODE, &node.name_any());
                pods.iter().for_each(|pod| this.queue.add_after(Key::of(pod.as_ref()), QUARANTINE));
            }
        });
    }

    async fn sync(&self, key: &Key) -> Result<Requeue, kube::Error> {
        let Some(pod) = self.pods.get(&key.namespace, &key.name) else { return Ok(Requeue::No) };
        let deleted = match node_of(&pod) {
            None if pod.metadata.deletion_timestamp.is_some() => self.delete(&pod).await,
            Some(node) if self.is_gone(node).await? => self.delete_from_lost_node(&pod).await,
            _ if is_terminal(&pod) && self.are_too_many(&pod) => self.delete(&pod).await,
            _ => return Ok(Requeue::No),
        };
        match deleted {
            Ok(()) => Ok(Requeue::No),
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(Requeue::No),
            Err(error) => Err(error),
        }
    }

    async fn is_gone(&self, node: &str) -> Result<bool, kube::Error> {
        if self.nodes.get("", node).is_some() {
            return Ok(false);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(api.get_metadata_opt(node).await?.is_none())
    }

    /// Whether this pod is among the oldest ended ones above the limit.
    fn are_too_many(&self, pod: &Pod) -> bool {
        let ended: Vec<_> = self.pods.list().into_iter().filter(|pod| is_terminal(pod)).collect();
        let age = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let older = ended.iter().filter(|other| age(other) < age(pod)).count();
        ended.len() > ENDED_LIMIT && older < ended.len() - ENDED_LIMIT
    }

    /// Nobody can report any more how the pod ended, so it counts as failed.
    async fn delete_from_lost_node(&self, pod: &Pod) -> Result<(), kube::Error> {
        if !is_terminal(pod) {
            let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists"});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"phase": "Failed", "conditions": [condition]}});
            self.api(pod).patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        self.delete(pod).await
    }

    async fn delete(&self, pod: &Pod) -> Result<(), kube::Error> {
        let this_one = Preconditions { uid: pod.metadata.uid.clone(), ..Default::default() };
        let now = DeleteParams::default().grace_period(0).preconditions(this_one);
        self.api(pod).delete(&pod.name_any(), &now).await.map(drop)
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""))
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())
}
