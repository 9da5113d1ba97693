//! replicaset-controller and replicationcontroller-controller: maintain the number of pods of a ReplicaSet or
//! ReplicationController.

mod replica_owner;
mod status;

use std::sync::Arc;

use client::{
    ApiErrorExt, CONSISTENCY_RECHECK, ConsistencyStore, ControllerExpectations, EventRecorder, RequeueAction,
    ResourceEvent, SharedInformer, WorkQueue,
};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::ReplicationController};
use kube::{ResourceExt, core::Selector};

use self::replica_owner::ReplicaOwner;
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
    pod_availability,
    pod_control::{PodControl, pod_from_template},
    pod_ranking,
    pod_view::PodView,
    slow_start::slow_start_batch,
};

/// Maximum number of pods created or deleted per sync.
const BURST_REPLICAS: usize = 500;

/// The controller of ReplicaSets or ReplicationControllers.
struct ReplicaController<K> {
    owners: SharedInformer<K>,
    pods: SharedInformer<PodView>,
    expectations: ControllerExpectations,
    consistency: ConsistencyStore,
    pod_control: PodControl,
}

/// The pods of an owner could not be synced. The messages are those of upstream's conditions.
#[derive(Debug, thiserror::Error)]
enum ReplicaSyncError {
    #[error("{}", .0.server_message())]
    Api(#[from] kube::Error),
    #[error("unable to delete pods: {}", .0.server_message())]
    Delete(kube::Error),
    #[error("unable to create pods, no template")]
    NoTemplate,
}

/// Runs the controller of ReplicaSets until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    run_replica_controller::<ReplicaSet>(context).await;
}

/// Runs the controller of ReplicationControllers until shutdown.
pub(crate) async fn run_replication_controller(context: ControllerContext) {
    run_replica_controller::<ReplicationController>(context).await;
}

async fn run_replica_controller<K: ReplicaOwner>(context: ControllerContext) {
    let recorder = EventRecorder::new(context.client.clone(), K::COMPONENT, None);
    let build = |_| ReplicaController::<K> {
        owners: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        expectations: ControllerExpectations::new(),
        consistency: ConsistencyStore::new(),
        pod_control: PodControl { client: context.client.clone(), recorder },
    };
    run_controller(&context, build).await;
}

impl<K: ReplicaOwner> Controller for ReplicaController<K> {
    type Key = ObjectKey;
    type Error = ReplicaSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.pods);
        controller_ref::index_by_controller(&self.owners);
        controller_ref::index_by_namespace(&self.owners);
        watches.add(&self.owners, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref());
            if let ResourceEvent::Deleted(_) = event {
                this.forget_owner(&key);
            }
            queue.add(key);
        });
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, ReplicaSyncError> {
        if !self.consistency.is_ready(&key.to_string()) {
            return Ok(RequeueAction::After(CONSISTENCY_RECHECK));
        }
        let Some(owner) = self.owners.get(&key.namespace, &key.name) else {
            self.forget_owner(key);
            return Ok(RequeueAction::AwaitChange);
        };
        match owner.selector() {
            Some(selector) => self.sync_owner(key, &owner, &selector).await,
            None => Ok(RequeueAction::AwaitChange),
        }
    }
}

impl<K: ReplicaOwner> ReplicaController<K> {
    fn forget_owner(&self, key: &ObjectKey) {
        self.expectations.forget(&key.to_string());
        self.consistency.forget(&key.to_string());
    }

    /// Records an expected creation or deletion and queues the owners that the event concerns. A deletion counts once it
    /// begins, so that the replacement need not wait for the grace period.
    fn handle_pod_event(&self, event: &ResourceEvent<PodView>, queue: &WorkQueue<ObjectKey>) {
        let pod = event.object();
        if let Some(owner) = controller_ref::resolve_controller(&self.owners, &pod.metadata) {
            let key = ObjectKey::from_object(owner.as_ref()).to_string();
            if pod.metadata.deletion_timestamp.is_some() || matches!(event, ResourceEvent::Deleted(_)) {
                self.expectations.deletion_observed(&key, pod.metadata.uid.as_deref().unwrap_or(""));
            } else if let ResourceEvent::Added(_) = event {
                self.expectations.creation_observed(&key);
            }
        }
        controller_ref::enqueue_controllers(&self.owners, event, |key| queue.add(key));
    }

    async fn sync_owner(
        &self,
        key: &ObjectKey,
        owner: &K,
        selector: &Selector,
    ) -> Result<RequeueAction, ReplicaSyncError> {
        // Read before listing pods: later events can only make the list newer.
        let settled = self.expectations.is_satisfied(&key.to_string());
        let all = controller_ref::claim_candidates(&self.pods, owner.meta());
        let terminating = all.iter().filter(|pod| is_terminating_pod_of(owner, selector, pod)).count();
        let active = all.into_iter().filter(|pod| pod_availability::is_pod_active(pod)).collect();
        let active = controller_ref::claim_objects(&self.pod_control.client, owner, selector, active).await?;

        let managed = match settled && owner.meta().deletion_timestamp.is_none() {
            true => self.manage_replicas(key, owner, &active).await,
            false => Ok(()),
        };
        let now = Timestamp::now();
        let failure = managed.as_ref().err().map(ToString::to_string);
        let counted = status::calculate_status(owner, &active, terminating, failure, now);
        let next = status::next_availability_check(owner, &counted, &active, now);
        if let Some(written) = status::update_status(&self.pod_control.client, owner, counted).await? {
            self.consistency.record_write(&key.to_string(), &self.owners, written.meta());
        }
        managed?;
        Ok(next.map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }

    async fn manage_replicas(
        &self,
        key: &ObjectKey,
        owner: &K,
        active: &[Arc<PodView>],
    ) -> Result<(), ReplicaSyncError> {
        let desired = usize::try_from(owner.desired_replicas()).unwrap_or(0);
        match active.len() {
            have if have < desired => self.create_pods(key, owner, (desired - have).min(BURST_REPLICAS)).await,
            have if have > desired => self.delete_pods(key, owner, active, (have - desired).min(BURST_REPLICAS)).await,
            _ => Ok(()),
        }
    }

    async fn create_pods(&self, key: &ObjectKey, owner: &K, count: usize) -> Result<(), ReplicaSyncError> {
        let template = owner.template().ok_or(ReplicaSyncError::NoTemplate)?;
        let (pod, about, key) = (pod_from_template(template, owner), owner.object_ref(&()), key.to_string());
        self.expectations.expect_creations(&key, count);
        let create = async |_| match self.pod_control.create_pod(&pod, &about).await {
            Ok(created) => {
                self.consistency.record_write(&key, &self.pods, &created.metadata);
                Ok(true)
            }
            // Every create fails in a terminating namespace, and the owner is deleted with it.
            Err(error) if error.is_namespace_terminating() => Ok(false),
            Err(error) => Err(error),
        };
        let (made, result) = slow_start_batch(count, create).await;
        // Pods that were not created produce no event.
        (made..count).for_each(|_| self.expectations.creation_observed(&key));
        Ok(result?)
    }

    async fn delete_pods(
        &self,
        key: &ObjectKey,
        owner: &K,
        active: &[Arc<PodView>],
        count: usize,
    ) -> Result<(), ReplicaSyncError> {
        let related = self.indirectly_related_pods(owner);
        let chosen = pod_ranking::pods_to_delete(active.to_vec(), &related, count, Timestamp::now());
        let (about, key) = (owner.object_ref(&()), key.to_string());
        self.expectations.expect_deletions(&key, chosen.iter().filter_map(|pod| pod.metadata.uid.clone()));
        let names: Vec<String> = chosen.iter().map(|pod| pod.name_any()).collect();
        let results = join_all(names.iter().map(|name| self.pod_control.delete_pod(name, &about))).await;
        for (pod, result) in chosen.iter().zip(&results) {
            if result.is_err() {
                self.expectations.deletion_observed(&key, pod.metadata.uid.as_deref().unwrap_or(""));
            }
        }
        let failure = results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found());
        failure.map_or(Ok(()), |error| Err(ReplicaSyncError::Delete(error)))
    }

    /// Returns the pods of all owners with the same controller, which are spread together.
    fn indirectly_related_pods(&self, owner: &K) -> Vec<Arc<PodView>> {
        let Some(controller) = controller_ref::controller_of(owner.meta()) else { return Vec::new() };
        let siblings = controller_ref::controlled_objects(&self.owners, &controller.uid);
        let pods_of = |sibling: &Arc<K>| match &sibling.meta().uid {
            Some(uid) => controller_ref::controlled_objects(&self.pods, uid),
            None => Vec::new(),
        };
        siblings.iter().flat_map(pods_of).collect()
    }
}

/// Whether the pod is the owner's and its deletion has begun.
fn is_terminating_pod_of<K: ReplicaOwner>(owner: &K, selector: &Selector, pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && !pod_availability::is_pod_terminal(pod)
        && controller_ref::controller_of(&pod.metadata).map(|controller| &controller.uid) == owner.meta().uid.as_ref()
        && controller_ref::selector_matches(selector, &pod.metadata)
}
