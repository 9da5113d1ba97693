//! A pod that could not be scheduled: back to the queue, with an event and a condition that say why.

use std::{sync::Arc, time::Instant};

use client::{ApiErrorExt, NewEvent};

use crate::{
    framework::queued_pod::QueuedPodInfo,
    framework::{
        Framework,
        extension_points::NominatingInfo,
        status::{Diagnosis, Status},
    },
    handle::SchedulerHandle,
    metrics::METRICS,
    pod_status::{StatusChange, patch_pod_status},
    views::pod_info::ConditionView,
};

/// Length at which event messages are cut.
const NOTE_LENGTH_LIMIT: usize = 1024;

/// Why a cycle failed, and what to do about the pod's nomination.
pub struct CycleFailure {
    message: String,
    /// Whether the pod was rejected, as opposed to an error.
    is_rejected: bool,
    unschedulable_plugins: Vec<&'static str>,
    pending_plugins: Vec<&'static str>,
    nominating: NominatingInfo,
}

impl CycleFailure {
    /// There are no nodes.
    pub fn no_nodes() -> Self {
        Self {
            message: "no nodes available to schedule pods".into(),
            is_rejected: true,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            nominating: NominatingInfo::Set(None),
        }
    }

    /// The pod fits on none of the nodes.
    pub fn unfit(diagnosis: Diagnosis, nodes: usize, nominating: NominatingInfo) -> Self {
        Self {
            message: diagnosis.render_message(nodes),
            is_rejected: true,
            unschedulable_plugins: diagnosis.unschedulable_plugins,
            pending_plugins: diagnosis.pending_plugins,
            nominating,
        }
    }

    /// The pod's group cannot be scheduled now, whatever was found out about the pod itself.
    pub fn group_unschedulable(message: &str, nominating: NominatingInfo) -> Self {
        let separator = if message.is_empty() { "" } else { ", " };
        Self {
            message: format!("pod group is unschedulable{separator}{message}"),
            is_rejected: true,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            nominating,
        }
    }

    /// Whether the pod was rejected, as opposed to an error.
    pub fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// Why the cycle failed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The node on which preemption makes room for the pod.
    pub fn nominated_node(&self) -> Option<&Arc<str>> {
        match &self.nominating {
            NominatingInfo::Set(node) => node.as_ref(),
            NominatingInfo::Keep => None,
        }
    }

    /// Something failed that has nothing to do with the pod.
    pub fn from_status(status: Status) -> Self {
        Self {
            message: status.message(),
            is_rejected: status.is_rejected(),
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            nominating: NominatingInfo::Set(None),
        }
    }
}

/// A pod whose cycle failed.
pub struct FailedPod<'a> {
    /// The pod's profile.
    pub framework: &'a Framework,
    /// The pod as it was in the queue.
    pub entry: QueuedPodInfo,
    /// When the cycle began.
    pub started: Instant,
}

impl FailedPod<'_> {
    /// Puts the pod back into the queue and reports why.
    pub fn handle(self, handle: &Arc<SchedulerHandle>, failure: CycleFailure) {
        let Self { framework, mut entry, started } = self;
        let reason = if failure.is_rejected { "Unschedulable" } else { "SchedulerError" };
        METRICS.pod_failed(&framework.profile_name, failure.is_rejected, started.elapsed());
        if !failure.is_rejected {
            tracing::warn!(pod = entry.pod.key(), error = failure.message, "scheduler: error, trying the pod again");
        }
        entry.unschedulable_plugins = failure.unschedulable_plugins;
        entry.pending_plugins = failure.pending_plugins;
        entry.gating_plugin = None;
        let pod = match handle.pods.get(&entry.pod.class.namespace, &entry.pod.name) {
            Some(current) if current.node_name.is_none() => {
                if current.uid != entry.pod.uid {
                    handle.queue.done(&entry.pod.uid);
                    return;
                }
                entry.pod = current.clone();
                handle.queue.add_unschedulable(entry);
                current
            }
            _ => {
                handle.queue.done(&entry.pod.uid);
                entry.pod
            }
        };
        handle.queue.nominate_pod(&pod, &failure.nominating);
        framework.recorder.record(NewEvent {
            type_: "Warning",
            regarding: pod.reference(),
            related: None,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: truncate_note(&failure.message),
        });
        let condition = ConditionView {
            status: "False".into(),
            reason: reason.into(),
            message: failure.message.into(),
            observed_generation: pod.generation,
            last_transition_time: None,
        };
        let change = StatusChange { condition: Some(("PodScheduled", condition)), nominating: failure.nominating };
        let client = handle.client.clone();
        handle.runtime.spawn(async move {
            if let Err(error) = patch_pod_status(&client, &pod, change).await
                && !error.is_not_found()
            {
                tracing::warn!(pod = pod.key(), %error, "scheduler: condition not written");
            }
        });
    }
}

/// Cuts a message at the limit of event notes.
fn truncate_note(message: &str) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= NOTE_LENGTH_LIMIT {
        return message.to_owned();
    }
    let mut end = NOTE_LENGTH_LIMIT - SUFFIX.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut() {
        assert_eq!(truncate_note("short"), "short");
        let cut = truncate_note(&"é".repeat(1000));
        assert!(cut.len() <= NOTE_LENGTH_LIMIT && cut.ends_with("é ..."), "{}", cut.len());
    }
}
