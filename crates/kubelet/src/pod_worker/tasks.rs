//! Background tasks of a pod worker and the handling of their results.

use std::{borrow::Cow, sync::Arc, time::Duration};

use client::panics::contain_panic;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use tokio::time::Instant;

use super::{MAX_SANDBOX_RETRY_DELAY, PodWorker, PodWorkerState, RESYNC_PERIOD, RUNTIME_RETRY_DELAY};
use crate::{
    containers::ContainerLaunch,
    context, grace_period, hooks,
    pod_actions::{ContainerReset, PodAction, RESET_KEY, SANDBOX_KEY},
    pod_sandbox,
    pod_spec::find_container,
    pod_status::WaitingReason,
    pod_termination,
    runtime_status::PodRuntimeStatus,
    termination_message,
};

/// Component label of logs and metrics.
const COMPONENT: &str = "kubelet";
/// Delay before work that panicked is retried.
const PANIC_RETRY_DELAY: Duration = Duration::from_secs(10);

/// Delay before a refused resize is retried.
const RESIZE_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The result of a task.
pub(super) struct TaskResult {
    key: String,
    outcome: TaskOutcome,
}

pub(super) enum TaskOutcome {
    Success,
    /// A container has started.
    Started,
    /// A container waits.
    Waiting(WaitingReason),
    /// The sandbox was not created.
    SandboxFailed(pod_sandbox::SandboxError),
    /// All containers are stopped.
    Stopped,
    /// The runtime failed to stop a container.
    StopFailed(runtime::cri::CriError),
    /// The runtime failed to remove a container.
    ResetFailed(runtime::cri::CriError),
    /// These containers have their new resources.
    Resized(Vec<String>),
    /// The runtime refused new resources.
    ResizeFailed(String),
    /// The task panicked, which has been logged and counted.
    Panicked,
}

impl PodWorker {
    /// Starts the task of an action.
    pub(super) fn start_action(&mut self, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus, step: PodAction) {
        match step {
            PodAction::CreateSandbox { attempt } => self.start_sandbox(pod, runtime_status, attempt),
            PodAction::StartContainer { name, attempt, replaces } => {
                self.start_container(pod, runtime_status, name, attempt, replaces)
            }
            PodAction::KillContainer { name, id } => {
                let message = format!("Container {name} definition changed, will be restarted");
                self.kill_container(pod, name, id, None, message);
            }
            PodAction::ResetContainers { containers } => self.reset_containers(pod, containers),
        }
    }

    /// Removes all containers, without grace, so that the next sync starts the pod anew in its sandbox. Their logs stay.
    fn reset_containers(&mut self, pod: &Arc<Pod>, containers: Vec<ContainerReset>) {
        let (kubelet, pod) = (self.kubelet.clone(), pod.clone());
        self.spawn_task(RESET_KEY.into(), async move {
            match pod_termination::remove_containers(&kubelet, &pod, &containers).await {
                Ok(()) => TaskOutcome::Success,
                Err(error) => TaskOutcome::ResetFailed(error),
            }
        });
    }

    fn start_sandbox(&mut self, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus, attempt: u32) {
        let (kubelet, pod, volumes) = (self.kubelet.clone(), pod.clone(), self.volumes.clone());
        let old: Vec<_> = runtime_status.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
        if !old.is_empty() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            kubelet.recorder.record_normal(context::pod_reference(&pod), "SandboxChanged", message);
        }
        self.volumes_refreshed = Some(Instant::now());
        self.spawn_task(SANDBOX_KEY.into(), async move {
            for id in old {
                // Frees the old sandbox's IP; a failure shows when the new one is created.
                let _ = kubelet.cri.stop_sandbox(&id).await;
            }
            match pod_sandbox::create_pod_sandbox(&kubelet, &pod, &volumes, attempt).await {
                Ok(_) => TaskOutcome::Success,
                Err(error) => TaskOutcome::SandboxFailed(error),
            }
        });
    }

    fn start_container(
        &mut self,
        pod: &Arc<Pod>,
        runtime_status: &PodRuntimeStatus,
        name: String,
        attempt: u32,
        replaces: Option<String>,
    ) {
        let volumes = self.volumes.clone();
        let (kubelet, pod, backoffs, ips) =
            (self.kubelet.clone(), pod.clone(), self.backoffs.clone(), self.kubelet.pod_ips(pod, runtime_status));
        let Some(container) = find_container(&pod, &name).map(Cow::into_owned) else { return };
        let Some(sandbox) = runtime_status.ready_sandbox().cloned() else { return };
        self.spawn_task(name, async move {
            let (kubelet, pod, container) = (&*kubelet, &*pod, &container);
            // A container that the runtime does not know may have run before: its logs are kept.
            let attempt = match attempt {
                0 => termination_message::next_attempt(kubelet.pod_log_dir(pod).join(&container.name)).await,
                attempt => attempt,
            };
            if let Some(id) = replaces {
                // A leftover makes the creation fail with a clear error.
                let _ = kubelet.cri.remove_container(&id).await;
            }
            let (ips, backoffs, volumes) = (&ips, &backoffs, &volumes);
            let launch =
                ContainerLaunch { kubelet, pod, container, attempt, sandbox: &sandbox, ips, backoffs, volumes };
            match launch.start_container().await {
                Ok(id) => {
                    let failed = hooks::run_post_start(kubelet, pod, container, &id, ips).await;
                    failed.map_or(TaskOutcome::Started, TaskOutcome::Waiting)
                }
                Err(waiting) => TaskOutcome::Waiting(waiting),
            }
        });
    }

    /// Kills one container, which the next sync restarts.
    ///
    /// `grace` overrides the pod's grace period.
    pub(super) fn kill_container(
        &mut self,
        pod: &Arc<Pod>,
        name: String,
        id: String,
        grace: Option<Duration>,
        message: String,
    ) {
        let (kubelet, pod) = (self.kubelet.clone(), pod.clone());
        let Some(container) = find_container(&pod, &name).map(Cow::into_owned) else { return };
        self.spawn_task(name, async move {
            kubelet.recorder.record_normal(context::container_reference(&pod, &container), "Killing", message);
            let grace = grace.unwrap_or_else(|| grace_period::pod_grace_period(&pod));
            match pod_termination::stop_container(&kubelet, &pod, &container, &id, grace).await {
                Ok(()) => TaskOutcome::Success,
                Err(error) => {
                    TaskOutcome::Waiting(WaitingReason { reason: "KillContainerError", message: error.message() })
                }
            }
        });
    }

    pub(super) fn kill_unhealthy_containers(&mut self, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus) {
        for failed in self.probes.failed_containers(pod, runtime_status) {
            if !self.busy_keys.contains(&failed.name) {
                let message = format!("Container {} failed {} probe, will be restarted", failed.name, failed.probe);
                self.kill_container(pod, failed.name, failed.id, failed.grace_period, message);
            }
        }
    }

    pub(super) fn spawn_task(&mut self, key: String, work: impl Future<Output = TaskOutcome> + Send + 'static) {
        self.busy_keys.insert(key.clone());
        let pod = context::format_pod(self.updates.borrow().pod());
        self.tasks.spawn(async move {
            let outcome = contain_panic(COMPONENT, format!("{pod} {key}"), || work).await;
            TaskResult { key, outcome: outcome.unwrap_or(TaskOutcome::Panicked) }
        });
    }

    /// Handles the result of a task.
    pub(super) fn handle_task_result(&mut self, pod: &Pod, ended: Result<TaskResult, tokio::task::JoinError>) {
        let TaskResult { key, outcome } = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                tracing::error!(pod = context::format_pod(pod), %error, "kubelet: pod task failed");
                return self.busy_keys.clear();
            }
        };
        self.busy_keys.remove(&key);
        match outcome {
            TaskOutcome::Success if key == RESET_KEY => self.waiting_reasons.clear(),
            TaskOutcome::Success => {
                self.waiting_reasons.remove(&key);
                self.sandbox_failures = 0;
            }
            TaskOutcome::Started => {
                self.waiting_reasons.remove(&key);
                // A container starts with what is allocated.
                self.mark_resized(pod, &[key]);
            }
            TaskOutcome::Resized(containers) => self.mark_resized(pod, &containers),
            TaskOutcome::ResizeFailed(error) => {
                self.retry_at.insert(key, Instant::now() + RESIZE_RETRY_DELAY);
                self.mark_resize_failed(pod, error);
            }
            TaskOutcome::Waiting(waiting) => {
                self.retry_at.insert(key.clone(), Instant::now() + self.retry_delay(pod, &key, &waiting));
                self.waiting_reasons.insert(key, waiting);
            }
            TaskOutcome::SandboxFailed(error) => {
                self.kubelet.recorder.record_warning(
                    context::pod_reference(pod),
                    error.event_reason(),
                    error.to_string(),
                );
                let pause = Duration::from_millis(500) * 2u32.pow(self.sandbox_failures.min(6));
                self.sandbox_failures += 1;
                self.retry_at.insert(key, Instant::now() + pause.min(MAX_SANDBOX_RETRY_DELAY));
            }
            TaskOutcome::ResetFailed(error) => {
                tracing::warn!(pod = context::format_pod(pod), %error, "kubelet: containers not removed, retrying");
                self.retry_at.insert(key, Instant::now() + RUNTIME_RETRY_DELAY);
            }
            TaskOutcome::Panicked => {
                self.requested_grace = None;
                self.retry_at.insert(key, Instant::now() + PANIC_RETRY_DELAY);
            }
            TaskOutcome::Stopped => self.state = PodWorkerState::Terminated,
            TaskOutcome::StopFailed(error) => {
                tracing::warn!(pod = context::format_pod(pod), %error, "kubelet: pod not stopped, retrying");
                self.requested_grace = None;
                self.retry_at.insert(key, Instant::now() + RUNTIME_RETRY_DELAY);
            }
        }
    }

    /// Returns the delay before a container start is retried.
    fn retry_delay(&self, pod: &Pod, name: &str, waiting: &WaitingReason) -> Duration {
        let image = find_container(pod, name).and_then(|container| container.image.clone()).unwrap_or_default();
        let key = format!("pull {image}");
        let now = Timestamp::now();
        let left = self.backoffs.last_update(&key).and_then(|failed| self.backoffs.remaining_delay(&key, failed, now));
        match (waiting.reason, left) {
            ("ImagePullBackOff", Some((_, left))) => left,
            ("RunContainerError", _) => Duration::ZERO,
            ("ErrImagePull", _) => Duration::from_secs(2),
            _ => Duration::from_secs(10),
        }
    }

    /// Removes old exited containers.
    pub(super) fn remove_old_containers(&mut self, runtime_status: &PodRuntimeStatus) {
        for id in runtime_status.removable_containers() {
            let kubelet = self.kubelet.clone();
            tokio::spawn(async move {
                if let Err(error) = kubelet.cri.remove_container(&id).await {
                    tracing::debug!(%error, "kubelet: old container not removed");
                }
            });
        }
    }

    /// Refreshes the contents of volumes when they are due.
    pub(super) fn refresh_volumes(&mut self, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus) {
        if runtime_status.ready_sandbox().is_none() || self.busy_keys.contains(SANDBOX_KEY) {
            return;
        }
        if !self.volumes.changes.take() && self.volumes_refreshed.is_some_and(|at| at.elapsed() < RESYNC_PERIOD) {
            return;
        }
        self.volumes_refreshed = Some(Instant::now());
        let (kubelet, pod, volumes) = (self.kubelet.clone(), pod.clone(), self.volumes.clone());
        self.spawn_task(SANDBOX_KEY.into(), async move {
            if let Err(error) = pod_sandbox::prepare_volumes(&kubelet, &pod, &volumes).await {
                kubelet.recorder.record_warning(context::pod_reference(&pod), error.event_reason(), error.to_string());
            }
            TaskOutcome::Success
        });
    }
}
