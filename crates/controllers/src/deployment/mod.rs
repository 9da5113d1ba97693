//! Deployments: a ReplicaSet per revision of the template, and rollouts from one to the next.

mod hash;
mod limits;
mod recreate;
mod revision;
mod rolling;
mod rollout;
mod scale;
mod status;

use std::sync::Arc;

use client::{ApiErrorExt, Change, Informer, Queue, Recorder, Requeue};
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

use self::rollout::Rollout;
use crate::{Context, key::Key, ownership};

const WORKERS: usize = 5;
/// Deployments by namespace, to find those that may adopt an orphan ReplicaSet.
const BY_NAMESPACE: &str = "namespace";

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("the pod template cannot be encoded: {0}")]
    Template(#[from] serde_json::Error),
    #[error("the Deployment has no spec")]
    NoSpec,
    #[error("ReplicaSet {0:?} has the name that the template's hash makes, but another template")]
    Collision(String),
}

struct Controller {
    client: Client,
    deployments: Informer<Deployment>,
    replica_sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
    recorder: Recorder,
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller {
        deployments: context.informers.of(),
        replica_sets: context.informers.of(),
        pods: context.informers.of(),
        queue: Queue::new(),
        recorder: Recorder::new(context.client.clone(), "deployment-controller", None),
        client: context.client,
    });
    controller.watch();
    controller.deployments.synced().await;
    controller.replica_sets.synced().await;
    controller.pods.synced().await;
    let worker = controller.clone();
    let sync = move |key| {
        let controller = worker.clone();
        async move { controller.sync(&key).await }
    };
    controller.queue.run(WORKERS, context.shutdown, sync).await;
}

impl Controller {
    fn watch(self: &Arc<Self>) {
        ownership::index_by_controller(&self.pods);
        ownership::index_by_controller(&self.replica_sets);
        self.deployments.add_index(BY_NAMESPACE, |deployment| deployment.metadata.namespace.iter().cloned().collect());
        let queue = self.queue.clone();
        self.deployments.on_change(move |change| queue.add(Key::of(change.object().as_ref())));
        let this = self.clone();
        self.replica_sets.on_change(move |change| this.replica_set_changed(change));
        let this = self.clone();
        self.pods.on_change(move |change| this.pod_changed(change));
    }

    /// Wakes the Deployments that a ReplicaSet belongs to, belonged to, or might belong to.
    fn replica_set_changed(&self, change: &Change<ReplicaSet>) {
        let meta = &change.object().metadata;
        let owner = self.deployment_of(meta);
        if let Change::Updated { old, .. } = change
            && let Some(before) = self.deployment_of(&old.metadata)
            && Some(&before) != owner.as_ref()
        {
            self.queue.add(before);
        }
        match owner {
            Some(key) => self.queue.add(key),
            None if ownership::controller_of(meta).is_none() => self.wake_adopters(meta),
            None => {}
        }
    }

    /// The end of a pod lets a Recreate go on; all else about pods shows in their ReplicaSets.
    fn pod_changed(&self, change: &Change<Pod>) {
        let Change::Deleted(pod) = change else { return };
        let Some(owner) = ownership::controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
            return;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("");
        let Some(replica_set) = self.replica_sets.get(namespace, &owner.name) else { return };
        let Some(key) = self.deployment_of(&replica_set.metadata) else { return };
        let deployment = self.deployments.get(&key.namespace, &key.name);
        if deployment.is_some_and(|deployment| limits::is_recreate(&deployment)) {
            self.queue.add(key);
        }
    }

    fn deployment_of(&self, replica_set: &ObjectMeta) -> Option<Key> {
        let owner = ownership::controller_of(replica_set).filter(|owner| owner.kind == "Deployment")?;
        let deployment = self.deployments.get(replica_set.namespace.as_deref().unwrap_or(""), &owner.name)?;
        (deployment.metadata.uid.as_ref() == Some(&owner.uid)).then(|| Key::of(deployment.as_ref()))
    }

    fn wake_adopters(&self, replica_set: &ObjectMeta) {
        for deployment in self.deployments.by_index(BY_NAMESPACE, replica_set.namespace.as_deref().unwrap_or("")) {
            let selector = deployment.spec.as_ref().and_then(|spec| ownership::selector(&spec.selector));
            if selector.is_some_and(|selector| ownership::selects(&selector, replica_set)) {
                self.queue.add(Key::of(deployment.as_ref()));
            }
        }
    }

    async fn sync(&self, key: &Key) -> Result<Requeue, Error> {
        let Some(deployment) = self.deployments.get(&key.namespace, &key.name) else { return Ok(Requeue::No) };
        match self.reconcile(&deployment).await {
            // The caches are behind; the change they lack brings the key back too, but need not come first.
            Err(Error::Api(error)) if error.is_conflict() => Ok(Requeue::Retry),
            Err(Error::Api(error)) if error.is_not_found() || error.is_namespace_terminating() => Ok(Requeue::No),
            result => result,
        }
    }

    async fn reconcile(&self, deployment: &Deployment) -> Result<Requeue, Error> {
        let Some(selector) = deployment.spec.as_ref().and_then(|spec| ownership::selector(&spec.selector)) else {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            self.recorder.warning(deployment.object_ref(&()), "SelectingAll", message);
            return Ok(Requeue::No);
        };
        let candidates = ownership::candidates(&self.replica_sets, &deployment.metadata);
        let owned = ownership::claim_all(&self.client, deployment, &selector, candidates).await?;
        let owned = owned.into_iter().map(Arc::unwrap_or_clone).collect();
        let mut rollout = Rollout::new(self, deployment, owned, Timestamp::now());
        rollout.sync_revision().await?;
        if deployment.metadata.deletion_timestamp.is_some() {
            return rollout.finish(false).await;
        }
        status::note_pause(&mut rollout.deployment, rollout.now);
        if deployment.spec.as_ref().and_then(|spec| spec.paused) == Some(true) {
            rollout.resize().await?;
            rollout.clean_up().await?;
            return rollout.finish(false).await;
        }
        if rollout.is_resized() {
            rollout.resize().await?;
            return rollout.finish(false).await;
        }
        match limits::is_recreate(deployment) {
            true => rollout.recreate().await?,
            false => rollout.roll().await?,
        }
        rollout.finish(true).await
    }

    fn namespaced<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, meta: &ObjectMeta) -> Api<K> {
        Api::namespaced(self.client.clone(), meta.namespace.as_deref().unwrap_or(""))
    }
}
