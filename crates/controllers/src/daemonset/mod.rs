//! daemonset-controller: one pod on every node that fits.

mod failed_pods_backoff;
mod placement;
mod plan;
mod revisions;
mod status;
mod sync_error;
mod template;

use std::{sync::Arc, time::Duration};

use client::{
    ApiErrorExt, CONSISTENCY_RECHECK, ConsistencyStore, ControllerExpectations, EventRecorder, RequeueAction,
    ResourceEvent, SharedInformer, WorkQueue,
};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ControllerRevision, DaemonSet},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Resource, ResourceExt, core::Selector};

use self::{
    failed_pods_backoff::FailedPodsBackoff,
    placement::{NodePlacement, node_placement},
    plan::{DaemonPlan, PodsByNode},
    revisions::{DaemonSetHistory, DaemonSetRevisions},
    sync_error::DaemonSetSyncError,
};
use crate::{
    ControllerContext,
    controller::{Controller, ControllerWatches, run_controller},
    controller_history::RevisionHistory,
    controller_ref::{self, SelectingController},
    object_key::ObjectKey,
    pod_availability::is_pod_terminal,
    pod_control::{PodControl, pod_from_template},
    pod_view::PodView,
    slow_start::slow_start_batch,
};

/// Maximum number of pods created or deleted per step.
const BURST_REPLICAS: usize = 250;
/// Index of daemon pods by the uid of their set and the name of their node.
const BY_SET_AND_NODE: &str = "daemonset-node";

/// A key of the work queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum DaemonSetKey {
    /// A DaemonSet to sync.
    Set(ObjectKey),
    /// A node that is new or changed its labels or taints: the sets that it affects are queued.
    Node(String),
}

struct DaemonSetController {
    queue: WorkQueue<DaemonSetKey>,
    sets: SharedInformer<DaemonSet>,
    pods: SharedInformer<PodView>,
    nodes: SharedInformer<Node>,
    revisions: SharedInformer<ControllerRevision>,
    history: DaemonSetHistory,
    expectations: ControllerExpectations,
    consistency: ConsistencyStore,
    failed_pods: FailedPodsBackoff,
    pod_control: PodControl,
}

/// Runs the controller until shutdown.
pub(crate) async fn run(context: ControllerContext) {
    let (client, informers) = (&context.client, &context.informers);
    let recorder = EventRecorder::new(client.clone(), "daemonset-controller", None);
    let build = |queue| DaemonSetController {
        queue,
        sets: informers.informer_for(),
        pods: informers.informer_for(),
        nodes: informers.informer_for(),
        revisions: informers.informer_for(),
        history: DaemonSetHistory {
            history: RevisionHistory { client: client.clone(), revisions: informers.informer_for() },
            pods: informers.informer_for(),
        },
        expectations: ControllerExpectations::new(),
        consistency: ConsistencyStore::new(),
        failed_pods: FailedPodsBackoff::default(),
        pod_control: PodControl { client: client.clone(), recorder },
    };
    run_controller(&context, build).await;
}

impl Controller for DaemonSetController {
    type Key = DaemonSetKey;
    type Error = DaemonSetSyncError;
    const WORKERS: usize = 2;

    fn watch(&self, watches: &mut ControllerWatches<Self>) {
        controller_ref::index_by_controller(&self.pods);
        controller_ref::index_by_controller(&self.revisions);
        controller_ref::index_by_namespace(&self.sets);
        self.pods.add_index(BY_SET_AND_NODE, |pod| set_and_node_of(pod).into_iter().collect());
        watches.add(&self.sets, |this, event, queue| {
            let key = ObjectKey::from_object(event.object().as_ref());
            if let ResourceEvent::Deleted(_) = event {
                this.forget_set(&key);
            }
            queue.add(DaemonSetKey::Set(key));
        });
        watches.add(&self.revisions, |this, event, queue| {
            // A revision with a controller is no news when it is added.
            let is_owned = controller_ref::controller_of(&event.object().metadata).is_some();
            if !matches!(event, ResourceEvent::Added(_)) || !is_owned {
                controller_ref::enqueue_controllers(&this.sets, event, |key| queue.add(DaemonSetKey::Set(key)));
            }
        });
        watches.add(&self.pods, Self::handle_pod_event);
        watches.add(&self.nodes, |_, event, queue| {
            if is_placement_change(event) {
                queue.add(DaemonSetKey::Node(event.object().name_any()));
            }
        });
    }

    async fn sync(&self, key: &DaemonSetKey) -> Result<RequeueAction, DaemonSetSyncError> {
        match key {
            DaemonSetKey::Set(key) => self.sync_daemon_set(key).await,
            DaemonSetKey::Node(name) => {
                if let Some(node) = self.nodes.get("", name) {
                    self.enqueue_sets_of_node(&node);
                }
                Ok(RequeueAction::AwaitChange)
            }
        }
    }
}

impl DaemonSetController {
    fn forget_set(&self, key: &ObjectKey) {
        self.expectations.forget(&key.to_string());
        self.consistency.forget(&key.to_string());
    }

    /// Records an expected creation or deletion and queues the sets that the event concerns.
    fn handle_pod_event(&self, event: &ResourceEvent<PodView>, queue: &WorkQueue<DaemonSetKey>) {
        let pod = event.object();
        if let Some(set) = controller_ref::resolve_controller(&self.sets, &pod.metadata) {
            let key = ObjectKey::from_object(set.as_ref()).to_string();
            if pod.metadata.deletion_timestamp.is_some() || matches!(event, ResourceEvent::Deleted(_)) {
                self.expectations.deletion_observed(&key, pod.metadata.uid.as_deref().unwrap_or(""));
            } else if let ResourceEvent::Added(_) = event {
                self.expectations.creation_observed(&key);
            }
        }
        controller_ref::enqueue_controllers(&self.sets, event, |key| queue.add(DaemonSetKey::Set(key)));
    }

    /// Queues the sets that must create or delete a pod on the node, or count it anew.
    fn enqueue_sets_of_node(&self, node: &Node) {
        for set in self.sets.list() {
            let index_value = format!("{}/{}", set.metadata.uid.as_deref().unwrap_or(""), node.name_any());
            let has_pod = !self.pods.by_index(BY_SET_AND_NODE, &index_value).is_empty();
            let misscheduled = set.status.as_ref().map_or(0, |status| status.number_misscheduled);
            let affected = match node_placement(&set, node) {
                NodePlacement::Run => !has_pod || misscheduled > 0,
                NodePlacement::KeepRunning => has_pod && misscheduled > 0,
                NodePlacement::Exclude => has_pod,
            };
            if affected {
                self.queue.add(DaemonSetKey::Set(ObjectKey::from_object(set.as_ref())));
            }
        }
    }

    async fn sync_daemon_set(&self, key: &ObjectKey) -> Result<RequeueAction, DaemonSetSyncError> {
        if !self.consistency.is_ready(&key.to_string()) {
            return Ok(RequeueAction::After(CONSISTENCY_RECHECK));
        }
        let Some(set) = self.sets.get(&key.namespace, &key.name) else {
            self.forget_set(key);
            return Ok(RequeueAction::AwaitChange);
        };
        if set.spec.as_ref().is_some_and(|spec| spec.selector == LabelSelector::default()) {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.pod_control.recorder.record_warning(set.object_ref(&()), "SelectingAll", message);
        }
        // While a set is deleted, its revisions may be gone before its pods, so its status would be wrong.
        let selector = set.selector().filter(|_| set.metadata.deletion_timestamp.is_none());
        let Some(selector) = selector else { return Ok(RequeueAction::AwaitChange) };
        let sync = DaemonSetSync { controller: self, set: &set, selector: &selector, key: key.to_string() };
        sync.sync_pods().await
    }
}

/// The sync of one set.
struct DaemonSetSync<'a> {
    controller: &'a DaemonSetController,
    set: &'a DaemonSet,
    selector: &'a Selector,
    key: String,
}

impl DaemonSetSync<'_> {
    /// Creates, deletes and updates pods and writes the status. While expected creations and deletions are missing, only
    /// the status is written, without the observed generation.
    async fn sync_pods(&self) -> Result<RequeueAction, DaemonSetSyncError> {
        let DaemonSetRevisions { hash, old } = self.controller.history.sync_revisions(self.set, self.selector).await?;
        let nodes = self.controller.nodes.list();
        if !self.controller.expectations.is_satisfied(&self.key) {
            let next = self.update_status(&nodes, &hash, false).await?;
            return Ok(next.map_or(RequeueAction::AwaitChange, RequeueAction::After));
        }
        let managed = self.update_daemon_set(&nodes, &hash, old).await;
        let next = self.update_status(&nodes, &hash, true).await;
        let delays = [managed?, next?];
        Ok(delays.into_iter().flatten().min().map_or(RequeueAction::AwaitChange, RequeueAction::After))
    }

    /// Returns the delay of failed pods that are deleted later.
    async fn update_daemon_set(
        &self,
        nodes: &[Arc<Node>],
        hash: &str,
        old: Vec<Arc<ControllerRevision>>,
    ) -> Result<Option<Duration>, DaemonSetSyncError> {
        let pods = pods_by_node(&self.claim_pods().await?);
        let mut plan = plan::plan_nodes(self.set, nodes, &pods, hash, Timestamp::now());
        let delay = self.delete_terminal_pods(&mut plan);
        self.apply_plan(plan, hash).await?;
        if template::is_rolling_update(self.set) && self.controller.expectations.is_satisfied(&self.key) {
            let pods = pods_by_node(&self.claim_pods().await?);
            let plan = plan::plan_rolling_update(self.set, nodes, &pods, hash, Timestamp::now());
            self.apply_plan(plan, hash).await?;
        }
        self.controller.history.cleanup_history(self.set, old, &self.claim_pods().await?).await?;
        Ok(delay)
    }

    async fn claim_pods(&self) -> Result<Vec<Arc<PodView>>, kube::Error> {
        let candidates = controller_ref::claim_candidates(&self.controller.pods, &self.set.metadata);
        controller_ref::claim_objects(&self.controller.pod_control.client, self.set, self.selector, candidates).await
    }

    /// Adds succeeded pods to those to delete, and failed ones as far as the back-off allows; returns the shortest delay
    /// of the others.
    fn delete_terminal_pods(&self, plan: &mut DaemonPlan) -> Option<Duration> {
        let (recorder, about) = (&self.controller.pod_control.recorder, self.set.object_ref(&()));
        let key = ObjectKey::from_object;
        for (node, pod) in std::mem::take(&mut plan.succeeded) {
            let message =
                format!("Found succeeded daemon pod {} on node {node}, will try to delete it", key(pod.as_ref()));
            recorder.record_normal(about.clone(), "SucceededDaemonPod", message);
            plan.delete.push(pod);
        }
        let observed = self.set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        let mut delays = Vec::new();
        for (node, pod) in std::mem::take(&mut plan.failed) {
            let uid = self.set.metadata.uid.as_deref().unwrap_or("");
            match self.controller.failed_pods.try_delete(format!("{uid}/{observed}/{node}")) {
                Err(delay) => delays.push(delay),
                Ok(()) => {
                    let message =
                        format!("Found failed daemon pod {} on node {node}, will try to kill it", key(pod.as_ref()));
                    recorder.record_warning(about.clone(), "FailedDaemonPod", message);
                    plan.delete.push(pod);
                }
            }
        }
        delays.into_iter().min()
    }

    /// Creates and deletes pods; deletions do not depend on creations.
    async fn apply_plan(&self, mut plan: DaemonPlan, hash: &str) -> Result<(), kube::Error> {
        plan.create.truncate(BURST_REPLICAS);
        plan.delete.truncate(BURST_REPLICAS);
        let expectations = &self.controller.expectations;
        expectations.expect_creations(&self.key, plan.create.len());
        expectations.expect_deletions(&self.key, plan.delete.iter().filter_map(|pod| pod.metadata.uid.clone()));
        let created = self.create_pods(&plan.create, hash).await;
        let deleted = self.delete_pods(&plan.delete).await;
        created.and(deleted)
    }

    async fn create_pods(&self, nodes: &[String], hash: &str) -> Result<(), kube::Error> {
        let pod = pod_from_template(&template::daemon_pod_template(self.set, hash), self.set);
        let about = self.set.object_ref(&());
        let create = async |index: usize| {
            let mut pod = pod.clone();
            let spec = pod.spec.get_or_insert_default();
            spec.affinity = nodes.get(index).map(|node| placement::assign_node(spec.affinity.take(), node));
            match self.controller.pod_control.create_pod(&pod, &about).await {
                Ok(created) => {
                    self.controller.consistency.record_write(&self.key, &self.controller.pods, &created.metadata);
                    Ok(true)
                }
                // Every create fails in a terminating namespace, and the set is deleted with it.
                Err(error) if error.is_namespace_terminating() => Ok(false),
                Err(error) => Err(error),
            }
        };
        let (made, result) = slow_start_batch(nodes.len(), create).await;
        // Pods that were not created produce no event.
        (made..nodes.len()).for_each(|_| self.controller.expectations.creation_observed(&self.key));
        result
    }

    async fn delete_pods(&self, pods: &[Arc<PodView>]) -> Result<(), kube::Error> {
        let about = self.set.object_ref(&());
        let delete = async |pod: &Arc<PodView>| {
            let deleted = self.controller.pod_control.delete_pod(&pod.name_any(), &about).await;
            if deleted.is_err() {
                let uid = pod.metadata.uid.as_deref().unwrap_or("");
                self.controller.expectations.deletion_observed(&self.key, uid);
            }
            deleted
        };
        let results = join_all(pods.iter().map(delete)).await;
        results.into_iter().filter_map(Result::err).find(|error| !error.is_not_found()).map_or(Ok(()), Err)
    }

    /// Writes the status; returns when ready pods may have become available.
    async fn update_status(
        &self,
        nodes: &[Arc<Node>],
        hash: &str,
        observed: bool,
    ) -> Result<Option<Duration>, DaemonSetSyncError> {
        let pods = pods_by_node(&self.claim_pods().await?);
        let counted = status::calculate_status(self.set, nodes, &pods, hash, Timestamp::now());
        let client = &self.controller.pod_control.client;
        if let Some(written) = status::update_status(client, self.set, &counted, observed).await? {
            self.controller.consistency.record_write(&self.key, &self.controller.sets, &written.metadata);
        }
        let min_ready = template::min_ready_seconds(self.set);
        let is_waiting = min_ready > 0 && Some(counted.number_ready) != counted.number_available;
        Ok(is_waiting.then(|| Duration::from_secs(min_ready.unsigned_abs().into())))
    }
}

/// Groups pods by node. Terminal pods that are being deleted need no more attention.
fn pods_by_node(pods: &[Arc<PodView>]) -> PodsByNode {
    let mut by_node = PodsByNode::new();
    for pod in pods.iter().filter(|pod| !is_pod_terminal(pod) || pod.metadata.deletion_timestamp.is_none()) {
        if let Some(node) = placement::target_node(pod) {
            by_node.entry(node.to_owned()).or_default().push(pod.clone());
        }
    }
    by_node
}

/// Returns the value of [`BY_SET_AND_NODE`].
fn set_and_node_of(pod: &PodView) -> Option<String> {
    let node = pod.spec.as_ref()?.node_name.as_deref().filter(|node| !node.is_empty())?;
    let controller =
        controller_ref::controller_of(&pod.metadata).filter(|controller| controller.kind == "DaemonSet")?;
    Some(format!("{}/{node}", controller.uid))
}

/// Whether an event may change which sets run on the node.
fn is_placement_change(event: &ResourceEvent<Node>) -> bool {
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let labels = |node: &Node| node.metadata.labels.clone().unwrap_or_default();
    match event {
        ResourceEvent::Added(_) => true,
        ResourceEvent::Updated { old, new } => labels(old) != labels(new) || taints(old) != taints(new),
        ResourceEvent::Deleted(_) => false,
    }
}
