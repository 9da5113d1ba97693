//! The scheduling cycle of one pod: find a node, assume the pod there, reserve what it uses, and hand it to the binding
//! cycle; or report why no node fits.

mod pod_group;

use std::{collections::HashMap, sync::Arc, time::Instant};

use client::{NewEvent, panics::contain_panic_sync};

use crate::{
    binding_cycle::BindingCycle,
    failure::{CycleFailure, FailedPod},
    framework::queued_pod::QueuedPodInfo,
    framework::{
        Framework,
        cycle_state::CycleState,
        extension_points::{CycleContext, NominatingInfo},
        rejection_diagnosis,
        status::Status,
    },
    handle::SchedulerHandle,
    metrics::METRICS,
    node_search::{NodeSearch, SearchFailure},
    snapshot::Snapshot,
    views::pod_info::PodInfo,
};

/// Component label of logs and metrics.
const COMPONENT: &str = "scheduler";

/// The scheduling loop, on a thread of its own.
pub struct SchedulingLoop {
    handle: Arc<SchedulerHandle>,
    frameworks: HashMap<Arc<str>, Arc<Framework>>,
    search: NodeSearch,
    snapshot: Snapshot,
    /// The other pods of the current cycle, if it is that of a pod group.
    group_members: Vec<QueuedPodInfo>,
}

impl SchedulingLoop {
    /// Creates a loop.
    pub fn new(
        handle: Arc<SchedulerHandle>,
        frameworks: HashMap<Arc<str>, Arc<Framework>>,
        percentage_of_nodes_to_score: i32,
    ) -> Self {
        let search = NodeSearch::new(handle.clone(), percentage_of_nodes_to_score);
        Self { handle, frameworks, search, snapshot: Snapshot::default(), group_members: Vec::new() }
    }

    /// Schedules pods until the queue is closed. A panic ends one cycle; its pod is tried again after a back-off.
    pub fn run(mut self) {
        while let Some(entry) = self.handle.queue.pop() {
            let (key, retry) = (entry.pod.key(), entry.clone());
            if contain_panic_sync(COMPONENT, &key, || self.schedule_pod(entry)).is_err() {
                self.snapshot = Snapshot::default();
                self.handle.lock_cache().request_full_snapshot();
                self.handle.lock_cache().forget_pod(&retry.pod.uid);
                self.requeue_after_panic(retry);
                let members = std::mem::take(&mut self.group_members);
                let is_assumed = |entry: &QueuedPodInfo| self.handle.lock_cache().is_assumed(&entry.pod.uid);
                members
                    .into_iter()
                    .filter(|entry| !is_assumed(entry))
                    .for_each(|entry| self.requeue_after_panic(entry));
            }
        }
    }

    fn requeue_after_panic(&self, mut entry: QueuedPodInfo) {
        entry.unschedulable_plugins.clear();
        entry.pending_plugins.clear();
        self.handle.queue.add_unschedulable(entry);
    }

    fn schedule_pod(&mut self, entry: QueuedPodInfo) {
        if self.handle.queue.schedules_pod_groups && entry.pod.class.pod_group.is_some() {
            self.schedule_pod_group(entry);
            return;
        }
        let started = Instant::now();
        let Some(framework) = self.framework_of(&entry.pod) else {
            self.handle.queue.done(&entry.pod.uid);
            return;
        };
        if self.is_skipped(&framework, &entry.pod) {
            self.handle.queue.done(&entry.pod.uid);
            return;
        }
        self.handle.lock_cache().update_snapshot(&mut self.snapshot);
        let mut state = CycleState::default();
        match self.find_node(&framework, &mut state, &entry.pod) {
            Ok(node) => {
                state.end_search();
                self.assume_and_bind(framework, state, entry, node, started);
            }
            Err(failure) => FailedPod { framework: &framework, entry, started }.handle(&self.handle, failure),
        }
    }

    /// The framework of the pod's profile.
    fn framework_of(&self, pod: &PodInfo) -> Option<Arc<Framework>> {
        self.frameworks.get(&pod.class.scheduler_name).cloned()
    }

    /// Searches a node on the snapshot; if none fits, PostFilter may make room on one.
    fn find_node(
        &mut self,
        framework: &Framework,
        state: &mut CycleState,
        pod: &Arc<PodInfo>,
    ) -> Result<Arc<str>, CycleFailure> {
        let started = Instant::now();
        let cycle = CycleContext { pod, snapshot: &self.snapshot };
        let found = self.search.find_node(cycle, state, framework).map_err(|failure| match failure {
            SearchFailure::NoNodes => CycleFailure::no_nodes(),
            SearchFailure::Failed(status) => CycleFailure::from_status(status),
            SearchFailure::Unfit(mut diagnosis, nodes) => {
                let (nominating, result) = framework.run_post_filter(cycle, state, &diagnosis.nodes);
                if let Err(status) = result {
                    diagnosis.post_filter_message = status.message();
                }
                CycleFailure::unfit(*diagnosis, nodes, nominating)
            }
        });
        METRICS.observe_algorithm(started.elapsed());
        found
    }

    /// Whether the pod needs no node any more: it is being deleted, or has one already.
    fn is_skipped(&self, framework: &Framework, pod: &Arc<PodInfo>) -> bool {
        if pod.is_deleting {
            framework.recorder.record(NewEvent {
                type_: "Warning",
                regarding: pod.reference(),
                related: None,
                reason: "FailedScheduling",
                action: "Scheduling",
                note: format!("skip schedule deleting pod: {}", pod.key()),
            });
            return true;
        }
        self.handle.lock_cache().is_assumed(&pod.uid)
    }

    fn assume_and_bind(
        &self,
        framework: Arc<Framework>,
        mut state: CycleState,
        entry: QueuedPodInfo,
        node: Arc<str>,
        started: Instant,
    ) {
        let assumed = Arc::new(entry.pod.with_node_name(&node));
        if let Err(error) = self.handle.lock_cache().assume_pod(assumed.clone()) {
            let failure = CycleFailure::from_status(Status::error(error));
            FailedPod { framework: &framework, entry, started }.handle(&self.handle, failure);
            return;
        }
        self.handle.queue.delete_nominated_pod(&assumed.uid);
        let reserved = framework.run_reserve(&mut state, &assumed, &node);
        match reserved.and_then(|()| framework.run_permit(&state, &assumed, &node)) {
            Ok(wait) => {
                let waits = wait.times;
                if !waits.is_empty() {
                    self.handle.waiting_pods.add(&assumed.uid, &waits);
                }
                let handle = self.handle.clone();
                let cycle = BindingCycle { handle, framework, state, entry, assumed, node, waits, started };
                self.handle.runtime.spawn(cycle.run());
            }
            Err(status) => {
                framework.run_unreserve(&state, &assumed, &node);
                self.handle.lock_cache().forget_pod(&assumed.uid);
                let failure = match status.is_rejected() {
                    true => CycleFailure::unfit(rejection_diagnosis(&status), 1, NominatingInfo::Set(None)),
                    false => CycleFailure::from_status(status),
                };
                FailedPod { framework: &framework, entry, started }.handle(&self.handle, failure);
            }
        }
    }
}
