//! One pass over the pods of a StatefulSet: creates missing replicas, removes condemned ones, and updates the rest.
//!
//! With the policy `OrderedReady` a pass stops at the first pod that it has to wait for; with `Parallel` it acts on all
//! pods. Scaling precedes updating.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetStatus},
    core::v1::Pod,
};
use kube::ResourceExt;

use super::{
    StatefulSetSyncError,
    identity::{self, RevisedSet, revision_of},
    pod_writer::StatefulPodWriter,
    revisions::{self, StatefulSetRevisions},
    status::{self, is_terminating, is_unavailable},
};
use crate::{
    pod_availability::{is_pod_terminal, pod_phase},
    pod_view::PodView,
    slow_start::slow_start_batch,
};

/// The pods of a set: one per replica (existing or to be created) and those beyond its ordinals, highest first.
#[derive(Debug, PartialEq)]
struct PodPartition {
    replicas: Vec<Arc<PodView>>,
    condemned: Vec<Arc<PodView>>,
    /// The replicas that are to be created, by name.
    new_pods: HashMap<String, Pod>,
}

impl PodPartition {
    fn new(set: &StatefulSet, current: &RevisedSet, update: &RevisedSet, pods: &[Arc<PodView>]) -> Self {
        let count = usize::try_from(identity::desired_replicas(set)).unwrap_or(0);
        let (mut replicas, mut condemned) = (vec![None; count], Vec::new());
        for pod in pods {
            let ordinal = identity::ordinal_of(&pod.metadata);
            match ordinal
                .and_then(|ordinal| identity::replica_index(set, ordinal))
                .and_then(|index| replicas.get_mut(index))
            {
                Some(replica) => *replica = Some(pod.clone()),
                None if ordinal.is_some() => condemned.push(pod.clone()),
                // The name is not one of this set's.
                None => {}
            }
        }
        condemned.sort_by_key(|pod| Reverse(identity::ordinal_of(&pod.metadata)));
        let ordinals = identity::start_ordinal(set)..;
        let mut new_pods = HashMap::new();
        let replicas = ordinals.zip(replicas).map(|(ordinal, pod)| {
            pod.unwrap_or_else(|| {
                let new = identity::new_versioned_pod(current, update, ordinal);
                let view = PodView { metadata: new.metadata.clone(), ..Default::default() };
                new_pods.insert(new.name_any(), new);
                Arc::new(view)
            })
        });
        Self { replicas: replicas.collect(), condemned, new_pods }
    }

    fn all(&self) -> impl Iterator<Item = &PodView> {
        self.replicas.iter().chain(&self.condemned).map(Arc::as_ref)
    }

    /// Returns the unavailable pod with the lowest ordinal, of the replicas first.
    fn first_unavailable(&self, set: &StatefulSet, now: Timestamp) -> Option<&Arc<PodView>> {
        let mut ascending = self.replicas.iter().chain(self.condemned.iter().rev());
        ascending.find(|pod| is_unavailable(set, pod, now))
    }
}

/// Whether later replicas have to wait for this one.
fn blocks_successors(set: &StatefulSet, pod: &PodView, now: Timestamp) -> bool {
    !status::is_running_and_ready(pod) || is_unavailable(set, pod, now)
}

/// Returns the replica to delete for a rolling update: the last one that is not updated, unless one after it is
/// unavailable.
fn replica_to_update<'a>(
    set: &StatefulSet,
    replicas: &'a [Arc<PodView>],
    update_revision: &str,
    now: Timestamp,
) -> Option<&'a Arc<PodView>> {
    let first = usize::try_from(identity::partition(set).unwrap_or(0)).unwrap_or(0);
    for pod in replicas.get(first..)?.iter().rev() {
        if revision_of(pod) != update_revision && !is_terminating(pod) {
            return Some(pod);
        }
        if is_unavailable(set, pod, now) {
            return None;
        }
    }
    None
}

/// The pass of one sync.
pub(super) struct StatefulSetUpdate<'a> {
    pub(super) writer: &'a StatefulPodWriter,
    pub(super) set: &'a StatefulSet,
    pub(super) now: Timestamp,
}

impl StatefulSetUpdate<'_> {
    /// Acts on the pods and returns the status to write, which reflects the pods as they were, with the failure of the
    /// pass, if any.
    pub(super) async fn update_pods(
        &self,
        revisions: &StatefulSetRevisions,
        pods: &[Arc<PodView>],
    ) -> Result<(StatefulSetStatus, Option<StatefulSetSyncError>), StatefulSetSyncError> {
        let (current, update) = (self.revise(&revisions.current)?, self.revise(&revisions.update)?);
        let mut status = StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            current_revision: Some(current.revision.clone()),
            update_revision: Some(update.revision.clone()),
            collision_count: Some(revisions.collisions),
            ..Default::default()
        };
        if self.set.metadata.deletion_timestamp.is_some() {
            status::count_replicas(self.set, &mut status, pods.iter().map(Arc::as_ref), self.now);
            return Ok((status, None));
        }
        let partition = PodPartition::new(self.set, &current, &update, pods);
        status::count_replicas(self.set, &mut status, partition.all(), self.now);
        match self.scale_pods(&partition).await {
            Ok(true) => {
                let updated = self.update_replicas(&partition, &update.revision, &mut status).await;
                Ok((status, updated.err()))
            }
            Ok(false) => Ok((status, None)),
            Err(error) => Ok((status, Some(error))),
        }
    }

    fn revise(
        &self,
        revision: &k8s_openapi::api::apps::v1::ControllerRevision,
    ) -> Result<RevisedSet, StatefulSetSyncError> {
        let name = revision.metadata.name.clone().unwrap_or_default();
        match revisions::apply_revision(self.set, revision) {
            Some(set) => Ok(RevisedSet { set, revision: name }),
            None => Err(StatefulSetSyncError::Revision(name)),
        }
    }

    /// Creates and repairs replicas, then removes condemned pods; returns whether nothing is left to wait for.
    async fn scale_pods(&self, partition: &PodPartition) -> Result<bool, StatefulSetSyncError> {
        let PodPartition { replicas, condemned, new_pods } = partition;
        let first_unavailable = partition.first_unavailable(self.set, self.now);
        Ok(self.for_each_pod(replicas, |pod| self.process_replica(pod, new_pods)).await?
            && self.for_each_pod(condemned, |pod| self.update_claims_of(pod)).await?
            && self.for_each_pod(condemned, |pod| self.process_condemned(pod, first_unavailable)).await?)
    }

    /// Calls `action` with the pods: one after another until it returns false, or all of them if the set is parallel.
    /// Returns whether the pass goes on.
    async fn for_each_pod<'p, F>(
        &self,
        pods: &'p [Arc<PodView>],
        action: impl Fn(&'p Arc<PodView>) -> F,
    ) -> Result<bool, StatefulSetSyncError>
    where
        F: Future<Output = Result<bool, StatefulSetSyncError>>,
    {
        if identity::is_parallel(self.set) {
            slow_start_batch(pods.len(), |index| action(&pods[index])).await.1?;
            return Ok(true);
        }
        for pod in pods {
            if !action(pod).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates, restarts or repairs a replica; returns whether its successors may be processed.
    async fn process_replica(
        &self,
        pod: &PodView,
        new_pods: &HashMap<String, Pod>,
    ) -> Result<bool, StatefulSetSyncError> {
        let set = self.set;
        if is_pod_terminal(pod) {
            if !is_terminating(pod) {
                self.writer.delete_pod(set, pod).await?;
            }
            // The replacement is created when the pod is gone.
            return Ok(false);
        }
        if !status::is_created(pod) {
            if let Some(new) = new_pods.get(&pod.name_any())
                && !self.writer.has_stale_claim(set, pod)
            {
                self.writer.create_pod(set, pod, new).await?;
            }
            return Ok(false);
        }
        if pod_phase(pod) == "Pending" {
            self.writer.create_missing_claims(set, pod).await?;
        }
        if !identity::is_parallel(set) && blocks_successors(set, pod, self.now) {
            return Ok(false);
        }
        let is_consistent = identity::identity_matches(set, &pod.metadata)
            && identity::storage_matches(set, pod)
            && self.writer.claim_owners_match(set, pod);
        if !is_consistent {
            self.writer.update_pod(set, pod).await?;
        }
        Ok(true)
    }

    /// Hands the claims of a condemned pod to it or takes them from it.
    async fn update_claims_of(&self, pod: &PodView) -> Result<bool, StatefulSetSyncError> {
        if !self.writer.claim_owners_match(self.set, pod) {
            self.writer.update_claim_owners(self.set, pod).await?;
        }
        Ok(true)
    }

    /// Deletes a condemned pod. In order, it must be available unless it is the first unavailable pod.
    async fn process_condemned(
        &self,
        pod: &PodView,
        first_unavailable: Option<&Arc<PodView>>,
    ) -> Result<bool, StatefulSetSyncError> {
        let is_first = first_unavailable.is_some_and(|first| first.metadata.name == pod.metadata.name);
        let is_blocked = blocks_successors(self.set, pod, self.now) && !is_first && !identity::is_parallel(self.set);
        if is_terminating(pod) || is_blocked {
            return Ok(false);
        }
        self.writer.delete_pod(self.set, pod).await?;
        Ok(false)
    }

    /// Deletes the next replica of a rolling update.
    async fn update_replicas(
        &self,
        partition: &PodPartition,
        update_revision: &str,
        status: &mut StatefulSetStatus,
    ) -> Result<(), StatefulSetSyncError> {
        if identity::has_strategy(self.set, "OnDelete") {
            return Ok(());
        }
        if let Some(pod) = replica_to_update(self.set, &partition.replicas, update_revision, self.now) {
            self.writer.delete_pod(self.set, pod).await?;
            status.current_replicas = status.current_replicas.map(|count| count - 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2030-01-01T00:00:20Z";

    fn set(replicas: i32, extra: Value) -> StatefulSet {
        let mut object =
            json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "selector": {}, "template": {}}});
        for (name, value) in extra.as_object().unwrap() {
            object["spec"][name] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    /// A pod; `state` is `new`, `pending`, `unready`, `ready` or `deleting`.
    fn pod(name: &str, revision: &str, state: &str) -> Arc<PodView> {
        let ready = if matches!(state, "ready" | "deleting") { "True" } else { "False" };
        let conditions = json!([{"type": "Ready", "status": ready, "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
        let phase = match state {
            "new" => "",
            "pending" => "Pending",
            _ => "Running",
        };
        let deletion = (state == "deleting").then_some(NOW);
        let labels = json!({"controller-revision-hash": revision});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": labels, "deletionTimestamp": deletion},
                "status": {"phase": phase, "conditions": conditions}}))
            .unwrap(),
        )
    }

    fn names(pods: &[Arc<PodView>]) -> Vec<&str> {
        pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
    }

    #[test]
    fn pods_are_partitioned_by_ordinal() {
        let set = set(3, json!({"ordinals": {"start": 1}}));
        let revised = || RevisedSet { set: set.clone(), revision: "r".into() };
        let pods = ["web-2", "web-0", "web-x", "web-9", "web-11"].map(|name| pod(name, "r", "ready"));
        let partition = PodPartition::new(&set, &revised(), &revised(), &pods);
        assert_eq!(names(&partition.replicas), ["web-1", "web-2", "web-3"]);
        assert_eq!(names(&partition.condemned), ["web-11", "web-9", "web-0"]);
        let first = partition.first_unavailable(&set, NOW.parse().unwrap()).unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("web-1"));
        assert!(!status::is_created(first));
    }

    #[test]
    fn unready_pods_block_their_successors() {
        let check = |state: &str, min_ready: i32, expected: bool| {
            let set = set(1, json!({"minReadySeconds": min_ready}));
            assert_eq!(blocks_successors(&set, &pod("web-0", "r", state), NOW.parse().unwrap()), expected, "{state}");
        };
        check("ready", 0, false);
        check("ready", 20, false);
        check("ready", 21, true);
        check("unready", 0, true);
        check("pending", 0, true);
        check("deleting", 0, true);
    }

    /// Replicas are `revision state`, in the order of their ordinals; the update revision is `new`.
    fn check_update(strategy: Value, replicas: &[&str], expected: Option<&str>) {
        let set = set(3, json!({"updateStrategy": strategy}));
        let replicas: Vec<_> = replicas
            .iter()
            .enumerate()
            .map(|(ordinal, text)| {
                let (revision, state) = text.split_once(' ').unwrap();
                pod(&format!("web-{ordinal}"), revision, state)
            })
            .collect();
        let chosen = replica_to_update(&set, &replicas, "new", NOW.parse().unwrap());
        assert_eq!(chosen.map(|pod| pod.metadata.name.as_deref().unwrap()), expected, "{replicas:?}");
    }

    #[test]
    fn last_outdated_replica_is_updated_first() {
        let rolling = json!({"type": "RollingUpdate"});
        check_update(rolling.clone(), &["old ready", "old ready", "old ready"], Some("web-2"));
        check_update(rolling.clone(), &["old ready", "old ready", "new ready"], Some("web-1"));
        check_update(rolling.clone(), &["old ready", "old ready", "new unready"], None);
        check_update(rolling.clone(), &["old ready", "old ready", "old deleting"], None);
        check_update(rolling.clone(), &["old ready", "old unready", "new ready"], Some("web-1"));
        check_update(rolling, &["new ready", "new ready", "new ready"], None);
        let partitioned = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
        check_update(partitioned.clone(), &["old ready", "old ready", "old ready"], Some("web-2"));
        check_update(partitioned, &["old ready", "old ready", "new ready"], None);
        check_update(json!({"rollingUpdate": {"partition": 9}}), &["old ready", "old ready", "old ready"], None);
    }
}
