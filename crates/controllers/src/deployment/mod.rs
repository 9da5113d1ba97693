//! deployment-controller: one ReplicaSet per template revision, and rollouts between them.

mod limits;
mod recreate;
mod revision;
mod rollback;
mod rolling;
mod rollout;
mod scale;
mod status;

use std::sync::Arc;

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::apps::v1::{Deployment, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};

use self::rollout::DeploymentRollout;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
    pod_view::PodView,
};

/// A Deployment could not be synced.
#[derive(Debug, thiserror::Error)]
enum DeploymentSyncError {
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    #[error("the pod template cannot be encoded: {0}")]
    Template(#[from] serde_json::Error),
    #[error("the Deployment has no spec")]
    NoSpec,
    #[error("ReplicaSet {0:?} has the name that the template's hash makes, but another template")]
    Collision(String),
}

struct DeploymentController {
    client: Client,
    deployments: SharedInformer<Deployment>,
    replica_sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<PodView>,
    recorder: EventRecorder,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| DeploymentController {
        deployments: context.informers.informer_for(),
        replica_sets: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        recorder: EventRecorder::new(context.client.clone(), "deployment-controller", None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for DeploymentController {
    type Key = ObjectKey;
    type Error = DeploymentSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.pods);
        controller_ref::index_by_controller(&self.replica_sets);
        controller_ref::index_by_namespace(&self.deployments);
        watches.add(&self.deployments, |_, event, queue| {
            queue.add(ObjectKey::from_object(event.object().as_ref()));
        });
        watches.add(&self.replica_sets, |this, event, queue| {
            controller_ref::enqueue_controllers(&this.deployments, event, |key| queue.add(key));
        });
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, DeploymentSyncError> {
        self.sync_deployment(key).await
    }
}

impl DeploymentController {
    /// Queues a Recreate Deployment when its last pod is gone; other pod changes show in the ReplicaSets.
    fn handle_pod_event(&self, event: &ResourceEvent<PodView>, queue: &WorkQueue<ObjectKey>) {
        let ResourceEvent::Deleted(pod) = event else { return };
        let Some(deployment) = controller_ref::resolve_controller(&self.replica_sets, &pod.metadata)
            .and_then(|replica_set| controller_ref::resolve_controller(&self.deployments, &replica_set.metadata))
        else {
            return;
        };
        if limits::is_recreate_strategy(&deployment) && !self.has_pods(&deployment.metadata) {
            queue.add(ObjectKey::from_object(deployment.as_ref()));
        }
    }

    /// Whether one of the Deployment's ReplicaSets has a pod.
    fn has_pods(&self, deployment: &ObjectMeta) -> bool {
        let replica_sets =
            controller_ref::controlled_objects(&self.replica_sets, deployment.uid.as_deref().unwrap_or(""));
        let uids = replica_sets.iter().filter_map(|replica_set| replica_set.metadata.uid.as_deref());
        uids.into_iter().any(|uid| !controller_ref::controlled_objects(&self.pods, uid).is_empty())
    }

    async fn sync_deployment(&self, key: &ObjectKey) -> Result<RequeueAction, DeploymentSyncError> {
        let Some(deployment) = self.deployments.get(&key.namespace, &key.name) else {
            return Ok(RequeueAction::AwaitChange);
        };
        match self.reconcile_deployment(&deployment).await {
            // The cache is stale; its next event also queues the key, but may come later. A ReplicaSet of an earlier
            // Deployment of this name that is gone by now has no event for this one at all.
            Err(DeploymentSyncError::Api(error)) if error.is_conflict() || error.is_not_found() => {
                Ok(RequeueAction::Backoff)
            }
            Err(DeploymentSyncError::Api(error)) if error.is_namespace_terminating() => Ok(RequeueAction::AwaitChange),
            result => result,
        }
    }

    async fn reconcile_deployment(&self, deployment: &Deployment) -> Result<RequeueAction, DeploymentSyncError> {
        let Some(selector) =
            deployment.spec.as_ref().and_then(|spec| controller_ref::non_empty_selector(&spec.selector))
        else {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.record_warning(deployment.object_ref(&()), "SelectingAll", message);
            return self.observe_generation(deployment).await;
        };
        let candidates = controller_ref::claim_candidates(&self.replica_sets, &deployment.metadata);
        let owned = controller_ref::claim_objects(&self.client, deployment, &selector, candidates).await?;
        let owned = owned.into_iter().map(Arc::unwrap_or_clone).collect();
        let mut rollout = DeploymentRollout::new(self, deployment, owned, Timestamp::now());
        rollout.sync_revision().await?;
        if deployment.metadata.deletion_timestamp.is_some() {
            return rollout.finish_sync(false).await;
        }
        status::check_paused_conditions(&mut rollout.deployment, rollout.now);
        if deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true) {
            rollout.scale_deployment().await?;
            if revision::rollback_revision(deployment).is_none() {
                rollout.cleanup_deployment().await?;
            }
            return rollout.finish_sync(false).await;
        }
        if let Some(revision) = revision::rollback_revision(deployment) {
            return rollout.roll_back(revision).await;
        }
        if rollout.is_scaling_event() {
            rollout.scale_deployment().await?;
            return rollout.finish_sync(false).await;
        }
        match limits::is_recreate_strategy(deployment) {
            true => rollout.rollout_recreate().await?,
            false => rollout.rollout_rolling().await?,
        }
        rollout.finish_sync(true).await
    }

    /// Writes the observed generation of a Deployment that is not synced further.
    async fn observe_generation(&self, deployment: &Deployment) -> Result<RequeueAction, DeploymentSyncError> {
        let mut update = deployment.clone();
        let status = update.status.get_or_insert_default();
        if status.observed_generation.unwrap_or(0) < deployment.metadata.generation.unwrap_or(0) {
            status.observed_generation = deployment.metadata.generation;
            let api: Api<Deployment> = self.namespaced_api(&deployment.metadata);
            api.replace_status(&deployment.name_any(), &PostParams::default(), &update).await?;
        }
        Ok(RequeueAction::AwaitChange)
    }

    fn namespaced_api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        meta: &ObjectMeta,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or(""))
    }
}

#[cfg(test)]
mod tests {
    use client::SharedInformerFactory;
    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    /// A server with a Deployment, whose ReplicaSet's name is taken when it is created and free when it is read.
    async fn answer_request(request: Request<Body>) -> Result<Response<Body>, tower::BoxError> {
        let (method, path, query) = (request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
        let failure =
            |code: u16, reason: &str| (code, json!({"kind": "Status", "code": code, "reason": reason}).to_string());
        let deployment = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "new", "generation": 1,
            "resourceVersion": "1"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}}});
        let end = json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "x", "metadata": {
            "resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}});
        let (code, body) = match () {
            () if query.contains("watch=true") && path.ends_with("deployments") => {
                (200, format!("{}\n{end}\n", json!({"type": "ADDED", "object": deployment})))
            }
            () if query.contains("watch=true") => (200, format!("{end}\n")),
            () if method == Method::POST && path.ends_with("/replicasets") => failure(409, "AlreadyExists"),
            () if path.contains("/replicasets/") => failure(404, "NotFound"),
            () => (200, deployment.to_string()),
        };
        let mut response = Response::new(Body::from(body.into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code)?;
        Ok(response)
    }

    #[tokio::test]
    async fn name_of_an_earlier_replica_set_that_is_gone_is_tried_again() {
        let client = client::transport::in_process_client(tower::service_fn(answer_request), "test");
        let informers = SharedInformerFactory::new(client.clone(), CancellationToken::new());
        let controller = DeploymentController {
            deployments: informers.informer_for(),
            replica_sets: informers.informer_for(),
            pods: informers.informer_for(),
            recorder: EventRecorder::new(client.clone(), "deployment-controller", None),
            client,
        };
        controller_ref::index_by_controller(&controller.replica_sets);
        controller_ref::index_by_controller(&controller.pods);
        controller.deployments.wait_for_cache_sync().await;
        let action = controller.sync(&ObjectKey::new("ns", "web")).await.unwrap();
        assert_eq!(action, RequeueAction::Backoff);
    }
}
