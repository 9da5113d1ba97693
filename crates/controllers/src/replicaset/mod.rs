//! replicaset-controller: maintains the number of pods of a ReplicaSet.

mod pod_ranking;
mod slow_start;
mod status;

use std::{collections::HashSet, sync::Arc};

use client::{
    ApiErrorExt, ControllerExpectations, EventRecorder, RequeueAction, ResourceEvent, SharedInformer, WorkQueue,
};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::ReplicaSet,
        core::v1::{Pod, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};

use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_ref,
    object_key::ObjectKey,
    pod_availability,
};

/// Maximum number of pods created or deleted per sync.
const BURST_REPLICAS: usize = 500;
/// Index of ReplicaSets by namespace, to find adopters of an orphaned pod.
const BY_NAMESPACE: &str = "namespace";

struct ReplicaSetController {
    client: Client,
    replica_sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<Pod>,
    expectations: ControllerExpectations,
    recorder: EventRecorder,
}

/// A ReplicaSet could not be synced.
#[derive(Debug, thiserror::Error)]
enum ReplicaSetSyncError {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Template(&'static str),
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let build = |_| ReplicaSetController {
        replica_sets: context.informers.informer_for(),
        pods: context.informers.informer_for(),
        expectations: ControllerExpectations::new(),
        recorder: EventRecorder::new(context.client.clone(), "replicaset-controller", None),
        client: context.client.clone(),
    };
    run_controller(&context, build).await;
}

impl Controller for ReplicaSetController {
    type Key = ObjectKey;
    type Error = ReplicaSetSyncError;
    const WORKERS: usize = 5;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.pods);
        controller_ref::index_by_controller(&self.replica_sets);
        self.replica_sets.add_index(BY_NAMESPACE, |rs| rs.metadata.namespace.iter().cloned().collect());
        watches.add(&self.replica_sets, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref());
            if let ResourceEvent::Deleted(_) = event {
                this.expectations.forget(&key.to_string());
            }
            queue.add(key);
        });
        watches.add(&self.pods, Self::handle_pod_event);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<RequeueAction, ReplicaSetSyncError> {
        self.sync_replica_set(key).await
    }
}

impl ReplicaSetController {
    /// Queues the current, previous and potential owners of a pod.
    fn handle_pod_event(&self, event: &ResourceEvent<Pod>, queue: &WorkQueue<ObjectKey>) {
        let pod = event.object();
        let controller = self.resolve_controller_ref(&pod.metadata);
        if let Some(key) = &controller {
            self.observe_expectations(event, &key.to_string());
            queue.add(key.clone());
        }
        if let ResourceEvent::Updated { old, .. } = event
            && let Some(key) = self.resolve_controller_ref(&old.metadata)
            && Some(&key) != controller.as_ref()
        {
            queue.add(key);
        }
        let is_orphan =
            controller_ref::controller_of(&pod.metadata).is_none() && !matches!(event, ResourceEvent::Deleted(_));
        if is_orphan && pod.metadata.deletion_timestamp.is_none() {
            self.enqueue_adopters(&pod.metadata, queue);
        }
    }

    /// Records a creation or deletion. A deletion counts once it begins, so that the replacement need not wait for the
    /// grace period.
    fn observe_expectations(&self, event: &ResourceEvent<Pod>, key: &str) {
        let pod = event.object();
        if pod.metadata.deletion_timestamp.is_some() || matches!(event, ResourceEvent::Deleted(_)) {
            self.expectations.deletion_observed(key, pod.metadata.uid.as_deref().unwrap_or(""));
        } else if let ResourceEvent::Added(_) = event {
            self.expectations.creation_observed(key);
        }
    }

    fn resolve_controller_ref(&self, pod: &ObjectMeta) -> Option<ObjectKey> {
        let reference = controller_ref::controller_of(pod).filter(|reference| reference.kind == "ReplicaSet")?;
        let namespace = pod.namespace.as_deref().unwrap_or("");
        let replica_set = self.replica_sets.get(namespace, &reference.name)?;
        (replica_set.metadata.uid.as_ref() == Some(&reference.uid))
            .then(|| ObjectKey::from_object(replica_set.as_ref()))
    }

    fn enqueue_adopters(&self, pod: &ObjectMeta, queue: &WorkQueue<ObjectKey>) {
        for replica_set in self.replica_sets.by_index(BY_NAMESPACE, pod.namespace.as_deref().unwrap_or("")) {
            let selector =
                replica_set.spec.as_ref().and_then(|spec| controller_ref::non_empty_selector(&spec.selector));
            if selector.is_some_and(|selector| controller_ref::selector_matches(&selector, pod)) {
                queue.add(ObjectKey::from_object(replica_set.as_ref()));
            }
        }
    }

    async fn sync_replica_set(&self, key: &ObjectKey) -> Result<RequeueAction, ReplicaSetSyncError> {
        let Some(replica_set) = self.replica_sets.get(&key.namespace, &key.name) else {
            self.expectations.forget(&key.to_string());
            return Ok(RequeueAction::AwaitChange);
        };
        let Some(selector) =
            replica_set.spec.as_ref().and_then(|spec| controller_ref::non_empty_selector(&spec.selector))
        else {
            return Ok(RequeueAction::AwaitChange);
        };
        // Read before listing pods: later events can only make the list newer.
        let settled = self.expectations.is_satisfied(&key.to_string());
        let all = controller_ref::claim_candidates(&self.pods, &replica_set.metadata);
        let terminating = all.iter().filter(|pod| {
            let ours = controller_ref::controller_of(&pod.metadata).map(|owner| &owner.uid)
                == replica_set.metadata.uid.as_ref();
            ours && pod.metadata.deletion_timestamp.is_some() && !pod_availability::is_pod_terminal(pod)
        });
        let terminating = terminating.count();
        let active = all.into_iter().filter(|pod| pod_availability::is_pod_active(pod)).collect();
        let active = controller_ref::claim_objects(&self.client, replica_set.as_ref(), &selector, active).await?;

        let managed = match settled && replica_set.metadata.deletion_timestamp.is_none() {
            true => self.manage_replicas(key, &replica_set, &active).await,
            false => Ok(()),
        };
        let now = Timestamp::now();
        let failure = managed.as_ref().err().map(|error| error.to_string());
        let counted = status::calculate_status(&replica_set, &active, terminating, failure, now);
        status::update_status(&self.client, &replica_set, counted).await?;
        managed?;
        Ok(status::next_availability_check(&replica_set, &active, now)
            .map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }

    async fn manage_replicas(
        &self,
        key: &ObjectKey,
        replica_set: &ReplicaSet,
        active: &[Arc<Pod>],
    ) -> Result<(), ReplicaSetSyncError> {
        let desired = usize::try_from(status::desired_replicas(replica_set)).unwrap_or(0);
        match active.len() {
            have if have < desired => self.create_pods(key, replica_set, (desired - have).min(BURST_REPLICAS)).await,
            have if have > desired => {
                self.delete_pods(key, replica_set, active, (have - desired).min(BURST_REPLICAS)).await
            }
            _ => Ok(()),
        }
    }

    async fn create_pods(
        &self,
        key: &ObjectKey,
        replica_set: &ReplicaSet,
        count: usize,
    ) -> Result<(), ReplicaSetSyncError> {
        let template = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let template = template.ok_or(ReplicaSetSyncError::Template("the ReplicaSet has no pod template"))?;
        let pod = pod_from_template(template, replica_set, controller_ref::new_controller_ref(replica_set));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let expectation = key.to_string();
        self.expectations.expect_creations(&expectation, count);
        let (made, result) = slow_start::slow_start_batch(count, || self.create_pod(&api, &pod, replica_set)).await;
        // Pods that were not created produce no event.
        (made..count).for_each(|_| self.expectations.creation_observed(&expectation));
        result.map_err(ReplicaSetSyncError::Api)
    }

    async fn create_pod(&self, api: &Api<Pod>, pod: &Pod, replica_set: &ReplicaSet) -> Result<bool, kube::Error> {
        match api.create(&PostParams::default(), pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", created.name_any());
                self.recorder.record_normal(replica_set.object_ref(&()), "SuccessfulCreate", message);
                Ok(true)
            }
            // The create may complete later; its event fulfils the expectation.
            Err(error) if error.is_timeout() => Ok(true),
            // Every create fails in a terminating namespace, and the ReplicaSet is deleted with it.
            Err(error) if error.is_namespace_terminating() => Ok(false),
            Err(error) => {
                let message = format!("Error creating: {}", error.server_message());
                self.recorder.record_warning(replica_set.object_ref(&()), "FailedCreate", message);
                Err(error)
            }
        }
    }

    async fn delete_pods(
        &self,
        key: &ObjectKey,
        replica_set: &ReplicaSet,
        active: &[Arc<Pod>],
        count: usize,
    ) -> Result<(), ReplicaSetSyncError> {
        let related = self.indirectly_related_pods(replica_set);
        let chosen = pod_ranking::pods_to_delete(active.to_vec(), &related, count, Timestamp::now());
        let expectation = key.to_string();
        self.expectations.expect_deletions(&expectation, chosen.iter().filter_map(|pod| pod.metadata.uid.clone()));
        let results = join_all(chosen.iter().map(|pod| self.delete_pod(pod, replica_set))).await;
        for (pod, result) in chosen.iter().zip(&results) {
            if result.is_err() {
                self.expectations.deletion_observed(&expectation, pod.metadata.uid.as_deref().unwrap_or(""));
            }
        }
        let failure = results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found());
        failure.map_or(Ok(()), |error| Err(ReplicaSetSyncError::Api(error)))
    }

    async fn delete_pod(&self, pod: &Pod, replica_set: &ReplicaSet) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        let about = replica_set.object_ref(&());
        match api.delete(&pod.name_any(), &DeleteParams::default()).await {
            Ok(_) => self.recorder.record_normal(about, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any())),
            Err(error) => {
                if !error.is_not_found() {
                    self.recorder.record_warning(
                        about,
                        "FailedDelete",
                        format!("Error deleting: {}", error.server_message()),
                    );
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the pods of all ReplicaSets with the same controller, which are spread together.
    fn indirectly_related_pods(&self, replica_set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let mut owners: HashSet<String> = replica_set.metadata.uid.iter().cloned().collect();
        if let Some(controller) = controller_ref::controller_of(&replica_set.metadata) {
            let siblings = controller_ref::controlled_objects(&self.replica_sets, &controller.uid);
            owners.extend(siblings.iter().filter_map(|sibling| sibling.metadata.uid.clone()));
        }
        owners.iter().flat_map(|uid| controller_ref::controlled_objects(&self.pods, uid)).collect()
    }
}

/// Builds a pod from the template, owned by the ReplicaSet.
fn pod_from_template(template: &PodTemplateSpec, replica_set: &ReplicaSet, owner: OwnerReference) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        generate_name: Some(format!("{}-", replica_set.name_any())),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![owner]),
        ..Default::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}
