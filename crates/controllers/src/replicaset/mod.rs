//! ReplicaSets: as many pods as asked for, made from the template or taken away by rank, and counted in the status.

mod rank;
mod slow_start;
mod status;

use std::{collections::HashSet, sync::Arc};

use client::{ApiErrorExt, Change, Expectations, Informer, Queue, Recorder, Requeue};
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

use crate::{Context, availability, key::Key, ownership};

/// At most this many pods are created or deleted in one sync.
const BURST: usize = 500;
const WORKERS: usize = 5;
/// ReplicaSets by namespace, to find those that may adopt an orphan pod.
const BY_NAMESPACE: &str = "namespace";

struct Controller {
    client: Client,
    replica_sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    queue: Queue<Key>,
    expectations: Expectations,
    recorder: Recorder,
}

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Template(&'static str),
}

/// Runs the loop until shutdown.
pub(crate) async fn run(context: Context) {
    let controller = Arc::new(Controller {
        replica_sets: context.informers.of(),
        pods: context.informers.of(),
        queue: Queue::new(),
        expectations: Expectations::new(),
        recorder: Recorder::new(context.client.clone(), "replicaset-controller", None),
        client: context.client,
    });
    controller.watch();
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
        self.replica_sets.add_index(BY_NAMESPACE, |rs| rs.metadata.namespace.iter().cloned().collect());
        let this = self.clone();
        self.replica_sets.on_change(move |change| {
            let key = Key::of(change.object().as_ref());
            if let Change::Deleted(_) = change {
                this.expectations.forget(&key.to_string());
            }
            this.queue.add(key);
        });
        let this = self.clone();
        self.pods.on_change(move |change| this.pod_changed(change));
    }

    /// Wakes the ReplicaSets that a pod belongs to, belonged to, or might belong to.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let controller = self.replica_set_of(&pod.metadata);
        if let Some(key) = &controller {
            self.observe(change, &key.to_string());
            self.queue.add(key.clone());
        }
        if let Change::Updated { old, .. } = change
            && let Some(key) = self.replica_set_of(&old.metadata)
            && Some(&key) != controller.as_ref()
        {
            self.queue.add(key);
        }
        let is_orphan = ownership::controller_of(&pod.metadata).is_none() && !matches!(change, Change::Deleted(_));
        if is_orphan && pod.metadata.deletion_timestamp.is_none() {
            self.wake_adopters(&pod.metadata);
        }
    }

    /// A deletion counts as seen as soon as it has begun: the replacement must not wait for the grace period.
    fn observe(&self, change: &Change<Pod>, key: &str) {
        let pod = change.object();
        if pod.metadata.deletion_timestamp.is_some() || matches!(change, Change::Deleted(_)) {
            self.expectations.deletion_observed(key, pod.metadata.uid.as_deref().unwrap_or(""));
        } else if let Change::Added(_) = change {
            self.expectations.creation_observed(key);
        }
    }

    fn replica_set_of(&self, pod: &ObjectMeta) -> Option<Key> {
        let reference = ownership::controller_of(pod).filter(|reference| reference.kind == "ReplicaSet")?;
        let namespace = pod.namespace.as_deref().unwrap_or("");
        let replica_set = self.replica_sets.get(namespace, &reference.name)?;
        (replica_set.metadata.uid.as_ref() == Some(&reference.uid)).then(|| Key::of(replica_set.as_ref()))
    }

    fn wake_adopters(&self, pod: &ObjectMeta) {
        for replica_set in self.replica_sets.by_index(BY_NAMESPACE, pod.namespace.as_deref().unwrap_or("")) {
            let selector = replica_set.spec.as_ref().and_then(|spec| ownership::selector(&spec.selector));
            if selector.is_some_and(|selector| ownership::selects(&selector, pod)) {
                self.queue.add(Key::of(replica_set.as_ref()));
            }
        }
    }

    async fn sync(&self, key: &Key) -> Result<Requeue, Error> {
        let Some(replica_set) = self.replica_sets.get(&key.namespace, &key.name) else {
            self.expectations.forget(&key.to_string());
            return Ok(Requeue::No);
        };
        let Some(selector) = replica_set.spec.as_ref().and_then(|spec| ownership::selector(&spec.selector)) else {
            return Ok(Requeue::No);
        };
        // Asked before the pods are listed: whatever is seen after this may only make the list newer.
        let settled = self.expectations.satisfied(&key.to_string());
        let all = ownership::candidates(&self.pods, &replica_set.metadata);
        let terminating = all.iter().filter(|pod| {
            let ours =
                ownership::controller_of(&pod.metadata).map(|owner| &owner.uid) == replica_set.metadata.uid.as_ref();
            ours && pod.metadata.deletion_timestamp.is_some() && !availability::is_terminal(pod)
        });
        let terminating = terminating.count();
        let active = all.into_iter().filter(|pod| availability::is_active(pod)).collect();
        let active = ownership::claim_all(&self.client, replica_set.as_ref(), &selector, active).await?;

        let managed = match settled && replica_set.metadata.deletion_timestamp.is_none() {
            true => self.manage(key, &replica_set, &active).await,
            false => Ok(()),
        };
        let now = Timestamp::now();
        let failure = managed.as_ref().err().map(|error| error.to_string());
        let counted = status::calculate(&replica_set, &active, terminating, failure, now);
        status::write(&self.client, &replica_set, counted).await?;
        managed?;
        Ok(status::next_check(&replica_set, &active, now).map_or(Requeue::No, Requeue::After))
    }

    async fn manage(&self, key: &Key, replica_set: &ReplicaSet, active: &[Arc<Pod>]) -> Result<(), Error> {
        let wanted = usize::try_from(status::desired(replica_set)).unwrap_or(0);
        match active.len() {
            have if have < wanted => self.create(key, replica_set, (wanted - have).min(BURST)).await,
            have if have > wanted => self.delete(key, replica_set, active, (have - wanted).min(BURST)).await,
            _ => Ok(()),
        }
    }

    async fn create(&self, key: &Key, replica_set: &ReplicaSet, count: usize) -> Result<(), Error> {
        let template = replica_set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let template = template.ok_or(Error::Template("the ReplicaSet has no pod template"))?;
        let pod = pod_from(template, replica_set, ownership::controller_reference(replica_set));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let expectation = key.to_string();
        self.expectations.expect_creations(&expectation, count);
        let (made, result) = slow_start::batches(count, || self.create_one(&api, &pod, replica_set)).await;
        // The informer will not show what was not made.
        (made..count).for_each(|_| self.expectations.creation_observed(&expectation));
        result.map_err(Error::Api)
    }

    async fn create_one(&self, api: &Api<Pod>, pod: &Pod, replica_set: &ReplicaSet) -> Result<bool, kube::Error> {
        match api.create(&PostParams::default(), pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", created.name_any());
                self.recorder.normal(replica_set.object_ref(&()), "SuccessfulCreate", message);
                Ok(true)
            }
            // The pod waits for its initializers, and is shown when they are done.
            Err(error) if error.is_timeout() => Ok(true),
            // Every creation fails there, and soon the ReplicaSet is gone too.
            Err(error) if error.is_namespace_terminating() => Ok(false),
            Err(error) => {
                let message = format!("Error creating: {}", error.reply());
                self.recorder.warning(replica_set.object_ref(&()), "FailedCreate", message);
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        key: &Key,
        replica_set: &ReplicaSet,
        active: &[Arc<Pod>],
        count: usize,
    ) -> Result<(), Error> {
        let related = self.related(replica_set);
        let chosen = rank::to_delete(active.to_vec(), &related, count, Timestamp::now());
        let expectation = key.to_string();
        self.expectations.expect_deletions(&expectation, chosen.iter().filter_map(|pod| pod.metadata.uid.clone()));
        let results = join_all(chosen.iter().map(|pod| self.delete_one(pod, replica_set))).await;
        for (pod, result) in chosen.iter().zip(&results) {
            if result.is_err() {
                self.expectations.deletion_observed(&expectation, pod.metadata.uid.as_deref().unwrap_or(""));
            }
        }
        let failure = results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found());
        failure.map_or(Ok(()), |error| Err(Error::Api(error)))
    }

    async fn delete_one(&self, pod: &Pod, replica_set: &ReplicaSet) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or(""));
        let about = replica_set.object_ref(&());
        match api.delete(&pod.name_any(), &DeleteParams::default()).await {
            Ok(_) => self.recorder.normal(about, "SuccessfulDelete", format!("Deleted pod: {}", pod.name_any())),
            Err(error) => {
                if !error.is_not_found() {
                    self.recorder.warning(about, "FailedDelete", format!("Error deleting: {}", error.reply()));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// The pods of all ReplicaSets with the same controller: those of one Deployment are spread together.
    fn related(&self, replica_set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let mut owners: HashSet<String> = replica_set.metadata.uid.iter().cloned().collect();
        if let Some(controller) = ownership::controller_of(&replica_set.metadata) {
            let siblings = ownership::controlled(&self.replica_sets, &controller.uid);
            owners.extend(siblings.iter().filter_map(|sibling| sibling.metadata.uid.clone()));
        }
        owners.iter().flat_map(|uid| ownership::controlled(&self.pods, uid)).collect()
    }
}

/// The pod that the template describes, owned by the ReplicaSet.
fn pod_from(template: &PodTemplateSpec, replica_set: &ReplicaSet, owner: OwnerReference) -> Pod {
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
