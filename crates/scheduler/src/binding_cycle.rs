//! The binding cycle of one pod: wait for permission, prepare volumes and devices, bind. It runs beside later cycles.

use std::{sync::Arc, time::Instant};

use client::{NewEvent, panics::contain_future};

use crate::{
    failure::{CycleFailure, FailedPod},
    framework::queued_pod::QueuedPodInfo,
    framework::{
        Framework, cluster_event::ClusterEvent, cycle_state::CycleState, extension_points::NominatingInfo,
        rejection_diagnosis, status::Status, waiting_pods::WaitTimes,
    },
    handle::SchedulerHandle,
    metrics::METRICS,
    pod_status::{StatusChange, patch_pod_status},
    views::pod_info::PodInfo,
};

/// A pod on its way to its node.
pub struct BindingCycle {
    /// The shared parts of the scheduler.
    pub handle: Arc<SchedulerHandle>,
    /// The pod's profile.
    pub framework: Arc<Framework>,
    /// The state of the scheduling cycle.
    pub state: CycleState,
    /// The pod as it was in the queue.
    pub entry: QueuedPodInfo,
    /// The pod as the cache assumes it.
    pub assumed: Arc<PodInfo>,
    /// The node.
    pub node: Arc<str>,
    /// The permissions that it waits for.
    pub waits: WaitTimes,
    /// When the scheduling cycle began.
    pub started: Instant,
}

impl BindingCycle {
    /// Binds the pod, or gives up what was reserved and reports the failure.
    pub async fn run(mut self) {
        let key = self.assumed.key();
        match contain_future("scheduler", &key, self.bind_pod()).await {
            Ok(Ok(())) => self.finish(),
            Ok(Err(failure)) => self.fail(failure),
            Err(_) => self.fail(BindingCycleFailure::Failed(Status::error("the binding cycle panicked"))),
        }
    }

    async fn bind_pod(&mut self) -> Result<(), BindingCycleFailure> {
        let (handle, framework) = (self.handle.clone(), self.framework.clone());
        let needs_work = framework.run_pre_bind_pre_flight(&mut self.state, &self.assumed, &self.node)?;
        if needs_work || !self.waits.is_empty() {
            // Tells autoscalers and others where the pod will run while that takes its time.
            let nominating = NominatingInfo::Set(Some(self.node.clone()));
            let change = StatusChange { condition: None, nominating };
            if let Err(error) = patch_pod_status(&handle.client, &self.assumed, change).await {
                tracing::warn!(pod = self.assumed.key(), %error, "scheduler: nominated node not set, binding anyway");
            }
        }
        if !self.waits.is_empty() {
            let permitted = handle.waiting_pods.wait(&self.assumed.uid, &self.waits).await;
            permitted.map_err(|status| match status.is_rejected() {
                true => BindingCycleFailure::NotPermitted(status),
                false => BindingCycleFailure::Failed(status),
            })?;
        }
        handle.queue.done(&self.assumed.uid);
        if needs_work {
            let work = framework.run_pre_bind(&self.state, &self.assumed, &self.node);
            let preempted = || Err(Status::error("preempted by DefaultPreemption"));
            handle.pre_bind_pods.run(&self.assumed.uid, work).await.unwrap_or_else(preempted)?;
        }
        match handle.extenders.bind_pod(&self.assumed, &self.node).await {
            Some(result) => result?,
            None => framework.run_bind(&self.assumed, &self.node).await?,
        }
        Ok(())
    }

    fn finish(self) {
        let Self { handle, framework, state, entry, assumed, node, started, .. } = self;
        framework.recorder.record(NewEvent {
            type_: "Normal",
            regarding: assumed.reference(),
            related: None,
            reason: "Scheduled",
            action: "Binding",
            note: format!("Successfully assigned {} to {node}", assumed.key()),
        });
        let waited = entry.initial_attempt.map(|first| handle.queue.now().saturating_sub(first));
        METRICS.pod_scheduled(&framework.profile_name, started.elapsed(), entry.attempts, waited);
        framework.run_post_bind(&state, &assumed, &node);
    }

    fn fail(self, failure: BindingCycleFailure) {
        let Self { handle, framework, state, entry, assumed, node, started, .. } = self;
        framework.run_unreserve(&state, &assumed, &node);
        handle.lock_cache().forget_pod(&assumed.uid);
        let (is_rejected, failure) = match failure {
            BindingCycleFailure::NotPermitted(status) => {
                (true, CycleFailure::unfit(rejection_diagnosis(&status), 1, NominatingInfo::Set(None)))
            }
            BindingCycleFailure::Failed(status) => (status.is_rejected(), CycleFailure::from_status(status)),
        };
        let object = crate::queue::pod_change(Some(assumed.clone()), None);
        let others = |pod: &PodInfo| pod.uid != assumed.uid;
        if !is_rejected {
            handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_DELETE, object.clone(), None);
        }
        FailedPod { framework: &framework, entry, started }.handle(&handle, failure);
        if is_rejected {
            handle.queue.move_pods_on_event(ClusterEvent::ASSIGNED_POD_DELETE, object, Some(&others));
        }
    }
}

/// Why a pod was not bound.
enum BindingCycleFailure {
    /// A Permit plug-in rejected it, as if it did not fit on its node.
    NotPermitted(Status),
    /// Something failed on the way.
    Failed(Status),
}

impl From<Status> for BindingCycleFailure {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}
