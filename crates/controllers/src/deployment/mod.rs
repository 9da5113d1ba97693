//! deployment-controller: one ReplicaSet per template revision, and rollouts between them.

mod hash;
mod limits;
mod recreate;
mod revision;
mod rolling;
mod rollout;
mod scale;
mod status;

use std::sync::Arc;

use client::{ApiErrorExt, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource};

use self::rollout::DeploymentRollout;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
};

/// Index of Deployments by namespace, to find adopters of an orphaned ReplicaSet.
const BY_NAMESPACE: &str = "namespace";

/// A Deployment could not be synced.
#[derive(Debug, thiserror::Error)]
enum DeploymentSyncError {
    #[error("{0}")]
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
    pods: SharedInformer<Pod>,
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
        self.deployments.add_index(BY_NAMESPACE, |deployment| deployment.metadata.namespace.iter().cloned().collect());
        watches.add(&self.deployments, |_, event, queue| {
            queue.add(ObjectKey::from_object(event.object().as_ref()));
        });
        watches.add(&self.replica_sets, Self::handle_replica_set_event);
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, DeploymentSyncError> {
        self.sync_deployment(key).await
    }
}

impl DeploymentController {
    /// Queues the current, previous and potential owners of a ReplicaSet.
    fn handle_replica_set_event(&self, event: &ResourceEvent<ReplicaSet>, queue: &WorkQueue<ObjectKey>) {
        let meta = &event.object().metadata;
        let owner = self.resolve_controller_ref(meta);
        if let ResourceEvent::Updated { old, .. } = event
            && let Some(before) = self.resolve_controller_ref(&old.metadata)
            && Some(&before) != owner.as_ref()
        {
            queue.add(before);
        }
        match owner {
            Some(key) => queue.add(key),
            None if controller_ref::controller_of(meta).is_none() => self.enqueue_adopters(meta, queue),
            None => {}
        }
    }

    /// Queues a Recreate Deployment when one of its pods is deleted; other pod changes show in the ReplicaSets.
    fn handle_pod_event(&self, event: &ResourceEvent<Pod>, queue: &WorkQueue<ObjectKey>) {
        let ResourceEvent::Deleted(pod) = event else { return };
        let Some(owner) = controller_ref::controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet")
        else {
            return;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        let Some(replica_set) = self.replica_sets.get(namespace, &owner.name) else { return };
        let Some(key) = self.resolve_controller_ref(&replica_set.metadata) else { return };
        let deployment = self.deployments.get(&key.namespace, &key.name);
        if deployment.is_some_and(|deployment| limits::is_recreate_strategy(&deployment)) {
            queue.add(key);
        }
    }

    fn resolve_controller_ref(&self, replica_set: &ObjectMeta) -> Option<ObjectKey> {
        let owner = controller_ref::controller_of(replica_set).filter(|owner| owner.kind == "Deployment")?;
        let deployment = self.deployments.get(replica_set.namespace.as_deref().unwrap_or(""), &owner.name)?;
        (deployment.metadata.uid.as_ref() == Some(&owner.uid)).then(|| ObjectKey::from_object(deployment.as_ref()))
    }

    fn enqueue_adopters(&self, replica_set: &ObjectMeta, queue: &WorkQueue<ObjectKey>) {
        for deployment in self.deployments.by_index(BY_NAMESPACE, replica_set.namespace.as_deref().unwrap_or("")) {
            let selector = deployment.spec.as_ref().and_then(|spec| controller_ref::non_empty_selector(&spec.selector));
            if selector.is_some_and(|selector| controller_ref::selector_matches(&selector, replica_set)) {
                queue.add(ObjectKey::from_object(deployment.as_ref()));
            }
        }
    }

    async fn sync_deployment(&self, key: &ObjectKey) -> Result<RequeueAction, DeploymentSyncError> {
        let Some(deployment) = self.deployments.get(&key.namespace, &key.name) else {
            return Ok(RequeueAction::AwaitChange);
        };
        match self.reconcile_deployment(&deployment).await {
            // The cache is stale; its next event also queues the key, but may come later.
            Err(DeploymentSyncError::Api(error)) if error.is_conflict() => Ok(RequeueAction::Backoff),
            Err(DeploymentSyncError::Api(error)) if error.is_not_found() || error.is_namespace_terminating() => {
                Ok(RequeueAction::AwaitChange)
            }
            result => result,
        }
    }

    async fn reconcile_deployment(&self, deployment: &Deployment) -> Result<RequeueAction, DeploymentSyncError> {
        let Some(selector) =
            deployment.spec.as_ref().and_then(|spec| controller_ref::non_empty_selector(&spec.selector))
        else {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.record_warning(deployment.object_ref(&()), "SelectingAll", message);
            return Ok(RequeueAction::AwaitChange);
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
            rollout.cleanup_deployment().await?;
            return rollout.finish_sync(false).await;
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

    fn namespaced_api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
        &self,
        meta: &ObjectMeta,
    ) -> Api<K> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or(""))
    }
}
