//! Deletes the victims of a preemption in the background.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use client::{ApiErrorExt, NewEvent};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};

use crate::{
    candidate::Candidate,
    framework::extension_points::NominatingInfo,
    handle::SchedulerHandle,
    metrics::METRICS,
    pod_status::{StatusChange, patch_pod_status},
    views::pod_info::{ConditionView, PodInfo},
};

/// A victim's namespace and name.
type VictimKey = (String, String);

/// Runs preemptions. A preempting pod is kept out of the active queue until its last victim is being deleted.
#[derive(Clone)]
pub struct PreemptionExecutor {
    handle: Arc<SchedulerHandle>,
    /// By uid of the preempting pod: its last victim, once all others are being deleted.
    preempting: Arc<Mutex<HashMap<Arc<str>, Option<VictimKey>>>>,
}

impl PreemptionExecutor {
    /// Creates an idle executor.
    pub fn new(handle: Arc<SchedulerHandle>) -> Self {
        Self { handle, preempting: Arc::default() }
    }

    /// Whether the victims of a pod are still to be deleted.
    pub fn is_preempting(&self, uid: &str) -> bool {
        let last_victim = match self.lock().get(uid) {
            None => return false,
            Some(None) => return true,
            Some(Some(victim)) => victim.clone(),
        };
        let victim = self.handle.pods.get(&last_victim.0, &last_victim.1);
        victim.is_some_and(|victim| !victim.is_deleting)
    }

    /// Deletes the victims; if that fails, the pod is tried again at once.
    pub fn preempt_in_background(&self, pod: Arc<PodInfo>, candidate: Candidate) {
        let count = candidate.victims.len();
        let victims: Vec<Arc<PodInfo>> = candidate.victims.into_iter().filter(|victim| !victim.is_deleting).collect();
        if victims.is_empty() {
            return;
        }
        METRICS.observe_preemption_victims(count);
        self.lock().insert(pod.uid.clone(), None);
        let this = self.clone();
        self.handle.runtime.spawn(async move {
            let result = this.preempt_victims(&pod, &candidate.node, victims).await;
            this.lock().remove(&pod.uid);
            if let Err(error) = result {
                tracing::warn!(pod = pod.key(), %error, "preemption: victims not deleted, trying the pod again");
                this.handle.queue.activate(std::slice::from_ref(&pod.uid));
            }
        });
    }

    async fn preempt_victims(
        &self,
        pod: &Arc<PodInfo>,
        node: &Arc<str>,
        mut victims: Vec<Arc<PodInfo>>,
    ) -> Result<(), kube::Error> {
        let cleared = self.clear_lower_nominations(pod, node).await;
        let last = victims.pop();
        futures::future::try_join_all(victims.iter().map(|victim| self.preempt_victim(pod, node, victim))).await?;
        if let Some(last) = last {
            let key = (last.class.namespace.to_string(), last.name.to_string());
            self.lock().insert(pod.uid.clone(), Some(key));
            self.preempt_victim(pod, node, &last).await?;
        }
        cleared
    }

    /// Ends the nominations of less important pods for the node, for there may be no room for them now.
    async fn clear_lower_nominations(&self, pod: &PodInfo, node: &str) -> Result<(), kube::Error> {
        let nominated = self.handle.queue.nominated_pods();
        let mut result = Ok(());
        for other in nominated.for_node(node).iter().filter(|other| other.priority() < pod.priority()) {
            let change = StatusChange { condition: None, nominating: NominatingInfo::Set(None) };
            if let Err(error) = patch_pod_status(&self.handle.client, other, change).await {
                tracing::warn!(pod = other.key(), %error, "preemption: nomination not cleared");
                result = Err(error);
            }
        }
        result
    }

    async fn preempt_victim(&self, pod: &PodInfo, node: &str, victim: &Arc<PodInfo>) -> Result<(), kube::Error> {
        let mut message = format!("Preempted by pod {} on node {node}", pod.uid);
        let is_preempted_in_memory = self.handle.waiting_pods.preempt(&victim.uid, "DefaultPreemption", "preempted")
            || self.handle.pre_bind_pods.cancel(&victim.uid);
        if is_preempted_in_memory {
            message.push_str(" (in kube-scheduler memory).");
        } else if !self.delete_victim(pod, victim).await? {
            return Ok(());
        }
        if let Some(recorder) = self.handle.recorder_of(&pod.class.scheduler_name) {
            recorder.record(NewEvent {
                type_: "Normal",
                regarding: victim.reference(),
                related: Some(pod.reference()),
                reason: "Preempted",
                action: "Preempting",
                note: message,
            });
        }
        Ok(())
    }

    /// Marks a victim and deletes it; returns `false` if it is gone already.
    async fn delete_victim(&self, pod: &PodInfo, victim: &Arc<PodInfo>) -> Result<bool, kube::Error> {
        let message = format!("{}: preempting to accommodate a higher priority pod", pod.class.scheduler_name);
        let condition = ConditionView {
            status: "True".into(),
            reason: "PreemptionByScheduler".into(),
            message: message.into(),
            observed_generation: victim.generation,
            last_transition_time: None,
        };
        let change =
            StatusChange { condition: Some(("DisruptionTarget", condition)), nominating: NominatingInfo::Keep };
        match patch_pod_status(&self.handle.client, victim, change).await {
            Err(error) if error.is_not_found() => return Ok(false),
            result => result?,
        }
        let api: Api<Pod> = Api::namespaced(self.handle.client.clone(), &victim.class.namespace);
        match api.delete(&victim.name, &DeleteParams::default()).await {
            Err(error) if error.is_not_found() => Ok(false),
            result => result.map(|_| true),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Option<VictimKey>>> {
        self.preempting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
