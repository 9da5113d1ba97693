//! The scheduling cycle of a pod group: its waiting pods are placed one after the other, on the snapshot alone. If Permit allows
//! one of them, those that were placed are bound; otherwise all go back to the queue.

use std::{sync::Arc, time::Instant};

use super::SchedulingLoop;
use crate::{
    failure::{CycleFailure, FailedPod},
    framework::{
        Framework, cycle_state::CycleState, extension_points::NominatingInfo, queued_pod::QueuedPodInfo,
        rejection_diagnosis, status::Status,
    },
    plugins::gang_scheduling::SimulatedPlacements,
    pod_group_status::{PodGroupCondition, write_pod_group_condition},
    views::{node_info::NodeInfo, pod_info::PodInfo},
};

/// Outcome of a pod's try on the snapshot.
enum Placement {
    /// It fits on a node.
    Placed(PlacedPod),
    /// It fits on a node after preemption; the failure says so.
    AfterPreemption(PlacedPod, CycleFailure),
    /// It fits nowhere.
    Failed(CycleFailure),
}

/// A pod on a node of the snapshot.
struct PlacedPod {
    node: Arc<str>,
    assumed: Arc<PodInfo>,
    state: CycleState,
    /// The node before.
    before: Arc<NodeInfo>,
    /// Why Permit lets the pod wait; empty if it does not.
    permit_message: String,
}

/// Outcome of the cycle of a group.
enum GroupOutcome {
    Schedulable,
    Unschedulable,
    WaitingOnPreemption,
    Failed(String),
}

impl Placement {
    fn placed(&self) -> Option<&PlacedPod> {
        match self {
            Self::Placed(placed) | Self::AfterPreemption(placed, _) => Some(placed),
            Self::Failed(_) => None,
        }
    }
}

impl SchedulingLoop {
    /// Schedules the waiting pods of the group that a pod belongs to.
    pub(super) fn schedule_pod_group(&mut self, first: QueuedPodInfo) {
        let entries = self.take_group_members(first);
        let Some(framework) = entries.first().and_then(|entry| self.framework_of(&entry.pod)) else {
            entries.iter().for_each(|entry| self.handle.queue.done(&entry.pod.uid));
            return;
        };
        if let Some(error) = scheduler_name_conflict(&entries) {
            for entry in entries {
                let framework = self.framework_of(&entry.pod).unwrap_or_else(|| framework.clone());
                let failed = FailedPod { framework: &framework, entry, started: Instant::now() };
                failed.handle(&self.handle, CycleFailure::from_status(Status::error(&error)));
            }
            return;
        }
        let (skipped, entries): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| self.is_skipped(&framework, &entry.pod));
        skipped.iter().for_each(|entry| self.handle.queue.done(&entry.pod.uid));
        if let Some(member) = entries.first().map(|entry| entry.pod.clone()) {
            self.handle.lock_cache().update_snapshot(&mut self.snapshot);
            let (outcome, placements) = self.place_group(&framework, &entries);
            self.submit_group(&framework, entries, placements, &outcome);
            self.report_group(&member, &outcome);
        }
    }

    /// Takes the group's other waiting pods out of the queue; those of higher priority come first, then the older ones.
    fn take_group_members(&mut self, first: QueuedPodInfo) -> Vec<QueuedPodInfo> {
        let members = self.handle.pod_groups.members_of_group(&first.pod);
        self.group_members = members.unscheduled.iter().filter_map(|uid| self.handle.queue.pop_pod(uid)).collect();
        let mut entries = vec![first];
        entries.extend(self.group_members.iter().cloned());
        entries.sort_by_key(|entry| (std::cmp::Reverse(entry.pod.priority()), entry.initial_attempt));
        entries
    }

    /// Places the pods on the snapshot, which is as before when this returns.
    fn place_group(
        &mut self,
        framework: &Framework,
        entries: &[QueuedPodInfo],
    ) -> (GroupOutcome, Vec<(Placement, Instant)>) {
        let (mut outcome, mut needs_preemption) = (GroupOutcome::Unschedulable, false);
        let mut placements: Vec<(Placement, Instant)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let started = Instant::now();
            let simulated = placements.iter().filter(|(placement, _)| placement.placed().is_some()).count();
            let placement = self.place_pod(framework, &entry.pod, simulated);
            if let Placement::Failed(failure) = &placement
                && !failure.is_rejected()
            {
                outcome = GroupOutcome::Failed(format!(
                    "failed to schedule other pod from a pod group: {}",
                    failure.message()
                ));
                placements.push((placement, started));
                break;
            }
            needs_preemption |= matches!(placement, Placement::AfterPreemption(..));
            if placement.placed().is_some_and(|placed| placed.permit_message.is_empty()) {
                outcome = match needs_preemption {
                    true => GroupOutcome::WaitingOnPreemption,
                    false => GroupOutcome::Schedulable,
                };
            }
            placements.push((placement, started));
        }
        for placed in placements.iter().rev().filter_map(|(placement, _)| placement.placed()) {
            self.revert_placement(framework, placed);
        }
        (outcome, placements)
    }

    fn place_pod(&mut self, framework: &Framework, pod: &Arc<PodInfo>, simulated: usize) -> Placement {
        let mut state = CycleState::default();
        let (node, preemption) = match self.find_node(framework, &mut state, pod) {
            Ok(node) => (node, None),
            Err(failure) => match failure.nominated_node().cloned() {
                Some(node) => (node, Some(failure)),
                None => return Placement::Failed(failure),
            },
        };
        state.end_search();
        let assumed = Arc::new(pod.with_node_name(&node));
        let Some(before) = self.snapshot.assume_pod(&node, assumed.clone()) else {
            return Placement::Failed(CycleFailure::from_status(Status::error(format!("node {node:?} not found"))));
        };
        state.write(SimulatedPlacements(simulated + 1));
        let reserved = framework.run_reserve(&mut state, &assumed, &node);
        let permit = reserved.and_then(|()| framework.run_permit(&state, &assumed, &node));
        state.remove::<SimulatedPlacements>();
        let mut placed = PlacedPod { node, assumed, state, before, permit_message: String::new() };
        match permit {
            Ok(wait) => placed.permit_message = wait.message,
            Err(status) => {
                self.revert_placement(framework, &placed);
                return Placement::Failed(match status.is_rejected() {
                    true => CycleFailure::unfit(rejection_diagnosis(&status), 1, NominatingInfo::Set(None)),
                    false => CycleFailure::from_status(status),
                });
            }
        }
        match preemption {
            None => Placement::Placed(placed),
            Some(failure) => Placement::AfterPreemption(placed, failure),
        }
    }

    fn revert_placement(&mut self, framework: &Framework, placed: &PlacedPod) {
        framework.run_unreserve(&placed.state, &placed.assumed, &placed.node);
        self.snapshot.replace_nodes([placed.before.clone()].into_iter());
    }

    /// Binds the pods of a schedulable group, and puts the others back into the queue.
    fn submit_group(
        &self,
        framework: &Arc<Framework>,
        entries: Vec<QueuedPodInfo>,
        placements: Vec<(Placement, Instant)>,
        outcome: &GroupOutcome,
    ) {
        let mut placements = placements.into_iter();
        for entry in entries {
            let (placement, started) = match placements.next() {
                Some((placement, started)) => (Some(placement), started),
                None => (None, Instant::now()),
            };
            let failure = match (placement, outcome) {
                (Some(Placement::Placed(placed)), GroupOutcome::Schedulable) => {
                    self.assume_and_bind(framework.clone(), placed.state, entry, placed.node, started);
                    continue;
                }
                (placement, outcome) => group_failure(placement, outcome),
            };
            FailedPod { framework, entry, started }.handle(&self.handle, failure);
        }
    }

    fn report_group(&self, member: &Arc<PodInfo>, outcome: &GroupOutcome) {
        let condition = match outcome {
            GroupOutcome::Schedulable => PodGroupCondition::new("True", "Scheduled", ""),
            GroupOutcome::Unschedulable => {
                PodGroupCondition::new("False", "Unschedulable", "pod group is unschedulable")
            }
            GroupOutcome::WaitingOnPreemption => PodGroupCondition::new(
                "False",
                "Unschedulable",
                "pod group is unschedulable, pod group is waiting for preemption to complete",
            ),
            GroupOutcome::Failed(message) => PodGroupCondition::new("False", "SchedulerError", message),
        };
        write_pod_group_condition(&self.handle, member, condition);
    }
}

/// Why a pod of a group goes back to the queue.
fn group_failure(placement: Option<Placement>, outcome: &GroupOutcome) -> CycleFailure {
    match (placement, outcome) {
        (Some(Placement::Failed(failure)), GroupOutcome::Failed(_)) if !failure.is_rejected() => failure,
        (_, GroupOutcome::Failed(message)) => CycleFailure::from_status(Status::error(message)),
        (Some(Placement::Placed(placed)), GroupOutcome::WaitingOnPreemption) => CycleFailure::group_unschedulable(
            "pod group is waiting for preemption to complete",
            NominatingInfo::Set(Some(placed.node)),
        ),
        (Some(Placement::AfterPreemption(_, failure)), GroupOutcome::WaitingOnPreemption) => failure,
        (Some(Placement::Placed(placed) | Placement::AfterPreemption(placed, _)), _) => {
            CycleFailure::group_unschedulable(&placed.permit_message, NominatingInfo::Set(None))
        }
        (Some(Placement::Failed(failure)), _) => failure,
        (None, _) => CycleFailure::group_unschedulable("", NominatingInfo::Set(None)),
    }
}

/// Returns an error if the pods of a group name different schedulers.
fn scheduler_name_conflict(entries: &[QueuedPodInfo]) -> Option<String> {
    let first = &entries.first()?.pod.class.scheduler_name;
    let other = entries.iter().map(|entry| &entry.pod.class.scheduler_name).find(|name| *name != first)?;
    Some(format!(
        "all pods in a single pod group should have the same .spec.schedulerName set, got: {other:?} and {first:?}"
    ))
}
