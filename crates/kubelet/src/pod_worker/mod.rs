//! The worker of one pod: syncs it to its spec, reports its status, and terminates it.
//!
//! Long work runs in separate tasks; every pod update, runtime event or finished task triggers another sync. The worker
//! holds no state that cannot be rebuilt from the runtime.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Pod, PodStatus},
    jiff::Timestamp,
};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};
use tracing::Instrument;

use crate::{
    admission::AdmissionRejection,
    backoff::{KeyedBackoff, format_go_duration},
    context::{self, KubeletContext},
    grace_period,
    pod_actions::{self, PodActionInput},
    pod_spec::{find_container, may_restart_all_containers},
    pod_status::{self, PodFailure, PodStatusInput, WaitingReason},
    pod_termination,
    prober::ProbeManager,
    resize::{PendingResize, PodAllocation},
    runtime_status::{ContainerRecord, PodRuntimeStatus},
    status_writer::StatusWriter,
    termination_message,
    volumes::PodVolumes,
};

mod resizing;
mod tasks;

use tasks::{TaskOutcome, TaskResult};

/// Resync interval; also refreshes volumes.
const RESYNC_PERIOD: Duration = Duration::from_secs(45);
/// Retry interval when the runtime fails.
const RUNTIME_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum back-off of sandbox creation.
const MAX_SANDBOX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// An update of a pod from the API server.
#[derive(Clone)]
pub enum PodUpdate {
    /// The pod's current state.
    Sync(Arc<Pod>),
    /// The pod was deleted; its last state.
    Deleted(Arc<Pod>),
}

impl PodUpdate {
    /// Returns the pod.
    pub fn pod(&self) -> &Arc<Pod> {
        match self {
            PodUpdate::Sync(pod) | PodUpdate::Deleted(pod) => pod,
        }
    }
}

/// Phase of a pod worker; it only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodWorkerState {
    /// Starting or running.
    Syncing,
    /// Terminating; nothing new is started.
    Terminating,
    /// All containers have ended; the final status is to be written and the pod's files removed.
    Terminated,
    /// Cleaned up; waiting for the API object to be deleted.
    Finished,
}

/// The worker of one pod.
pub struct PodWorker {
    kubelet: Arc<KubeletContext>,
    updates: watch::Receiver<PodUpdate>,
    wake: Arc<Notify>,
    state: PodWorkerState,
    tasks: JoinSet<TaskResult>,
    /// Keys of `tasks`.
    busy_keys: HashSet<String>,
    /// Earliest retry of failed keys.
    retry_at: HashMap<String, Instant>,
    waiting_reasons: HashMap<String, WaitingReason>,
    termination_messages: HashMap<String, String>,
    backoffs: Arc<KeyedBackoff>,
    volumes: Arc<PodVolumes>,
    probes: ProbeManager,
    writer: StatusWriter,
    failure: Option<PodFailure>,
    /// Resources that the node has set aside for the containers.
    allocation: Option<PodAllocation>,
    pending_resize: Option<PendingResize>,
    resize_error: Option<String>,
    /// Why the node does not admit the pod.
    rejection: Option<AdmissionRejection>,
    sandbox_failures: u32,
    /// The shortest requested grace period.
    requested_grace: Option<Duration>,
    /// When the volumes were last brought up to date; `None` for those of an earlier kubelet.
    volumes_refreshed: Option<Instant>,
}

impl PodWorker {
    /// Creates a worker for the pod in `updates`; `wake` triggers a sync; a rejected pod fails.
    pub fn new(
        kubelet: Arc<KubeletContext>,
        updates: watch::Receiver<PodUpdate>,
        wake: Arc<Notify>,
        rejection: Option<AdmissionRejection>,
    ) -> Self {
        let pod = updates.borrow().pod().clone();
        Self {
            writer: StatusWriter::new(kubelet.client.clone(), &pod, &kubelet.pods),
            probes: ProbeManager::new(wake.clone()),
            volumes: Arc::new(PodVolumes::new(wake.clone())),
            kubelet,
            updates,
            wake,
            state: PodWorkerState::Syncing,
            tasks: JoinSet::new(),
            busy_keys: HashSet::new(),
            retry_at: HashMap::new(),
            waiting_reasons: HashMap::new(),
            termination_messages: HashMap::new(),
            backoffs: Arc::default(),
            failure: None,
            allocation: None,
            pending_resize: None,
            resize_error: None,
            rejection,
            sandbox_failures: 0,
            requested_grace: None,
            volumes_refreshed: None,
        }
    }

    /// Runs until the pod is deleted and cleaned up.
    pub async fn run(mut self) {
        loop {
            let update = self.updates.borrow_and_update().clone();
            let (pod, started) = (context::format_pod(update.pod()), Instant::now());
            let span = tracing::debug_span!("sync_pod", pod);
            let result = self.sync_once(&update).instrument(span).await;
            tracing::debug!(pod, duration = ?started.elapsed(), "pod synced");
            let next = match result {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(pod, %error, "kubelet: pod sync failed, retrying");
                    RUNTIME_RETRY_DELAY
                }
            };
            let held = self.retry_at.values().min().copied().unwrap_or_else(|| Instant::now() + next);
            tokio::select! {
                changed = self.updates.changed() => if changed.is_err() { return },
                () = self.wake.notified() => {}
                Some(ended) = self.tasks.join_next() => self.handle_task_result(update.pod(), ended),
                () = tokio::time::sleep_until(held.min(Instant::now() + next)) => {}
            }
        }
    }

    /// Syncs once; returns the time until the next sync, or `None` when the pod is finished.
    async fn sync_once(&mut self, update: &PodUpdate) -> Result<Option<Duration>, runtime::cri::CriError> {
        let pod = update.pod().clone();
        let leaving = matches!(update, PodUpdate::Deleted(_)) || pod.metadata.deletion_timestamp.is_some();
        if self.state == PodWorkerState::Syncing && leaving {
            self.begin_termination();
        }
        let now = Instant::now();
        self.retry_at.retain(|_, until| *until > now);
        let next = match self.state {
            PodWorkerState::Syncing => self.sync_pod(&pod).await?,
            PodWorkerState::Terminating => self.sync_terminating_pod(&pod, leaving).await?,
            PodWorkerState::Terminated | PodWorkerState::Finished => Duration::ZERO,
        };
        match self.state {
            PodWorkerState::Syncing | PodWorkerState::Terminating => Ok(Some(next)),
            PodWorkerState::Terminated => {
                if !self.sync_terminated_pod(&pod).await? {
                    return Ok(Some(RUNTIME_RETRY_DELAY));
                }
                self.state = PodWorkerState::Finished;
                self.release_pod(update, leaving).await
            }
            PodWorkerState::Finished => self.release_pod(update, leaving).await,
        }
    }

    /// Starts missing containers and reports the status.
    async fn sync_pod(&mut self, pod: &Arc<Pod>) -> Result<Duration, runtime::cri::CriError> {
        let runtime_status = PodRuntimeStatus::fetch(&self.kubelet.cri, context::pod_uid(pod)).await?;
        if pod_status::is_terminal(pod) {
            self.begin_termination();
            return self.sync_terminating_pod(pod, false).await;
        }
        if let Some(verdict) = self.find_pod_failure(pod, &runtime_status) {
            self.failure = Some(verdict);
            self.begin_termination();
            return self.sync_terminating_pod(pod, false).await;
        }
        let pod = &self.allocate_resources(pod);
        let mut busy = self.busy_keys.clone();
        busy.extend(self.retry_at.keys().cloned());
        let health = self.probes.container_health();
        let input = PodActionInput {
            pod,
            runtime_status: &runtime_status,
            backoffs: &self.backoffs,
            busy: &busy,
            has_tasks: !self.busy_keys.is_empty(),
            health: &health,
            now: Timestamp::now(),
        };
        let plan = pod_actions::compute_pod_actions(&input);
        for (name, delay) in &plan.crash_backoffs {
            self.report_crash_backoff(pod, name, *delay);
        }
        for step in plan.actions {
            self.start_action(pod, &runtime_status, step);
        }
        self.actuate_resources(pod, &runtime_status);
        self.probes.sync_probes(&self.kubelet, pod, &runtime_status);
        self.kill_unhealthy_containers(pod, &runtime_status);
        self.report_status(pod, &runtime_status, false).await;
        self.remove_old_containers(&runtime_status);
        self.refresh_volumes(pod, &runtime_status);
        if plan.finished {
            self.begin_termination();
            return self.sync_terminating_pod(pod, false).await;
        }
        let deadline = self.remaining_active_deadline(pod).unwrap_or(RESYNC_PERIOD);
        Ok(plan.next_check.unwrap_or(RESYNC_PERIOD).min(deadline).min(RESYNC_PERIOD))
    }

    /// Aborts running tasks, such as a long image pull, and starts termination.
    fn begin_termination(&mut self) {
        self.tasks.abort_all();
        self.busy_keys.clear();
        self.retry_at.clear();
        self.state = PodWorkerState::Terminating;
    }

    /// Returns a failure of the pod as a whole.
    fn find_pod_failure(&self, pod: &Pod, runtime_status: &PodRuntimeStatus) -> Option<PodFailure> {
        // A pod with a sandbox has been admitted before.
        if let Some(rejection) = self.rejection.as_ref().filter(|_| runtime_status.sandboxes.is_empty()) {
            let AdmissionRejection { reason, message } = rejection;
            self.kubelet.recorder.record_warning(context::pod_reference(pod), reason, message.clone());
            return Some(PodFailure { reason: reason.clone(), message: format!("Pod was rejected: {message}") });
        }
        if let Some(eviction) = self.kubelet.evictions.find(context::pod_uid(pod)) {
            return Some(PodFailure { reason: pod_status::EVICTED.into(), message: eviction.message });
        }
        if self.remaining_active_deadline(pod) == Some(Duration::ZERO) {
            let message = "Pod was active on the node longer than the specified deadline".to_string();
            self.kubelet.recorder.record_normal(context::pod_reference(pod), "DeadlineExceeded", message.clone());
            return Some(PodFailure { reason: "DeadlineExceeded".into(), message });
        }
        None
    }

    fn report_crash_backoff(&mut self, pod: &Pod, name: &str, delay: Duration) {
        let delay = format_go_duration(delay);
        let message = format!("back-off {delay} restarting failed container={name} pod={}", context::format_pod(pod));
        let waiting = WaitingReason { reason: "CrashLoopBackOff", message };
        if self.waiting_reasons.insert(name.into(), waiting.clone()) != Some(waiting)
            && let Some(container) = find_container(pod, name)
        {
            let about = context::container_reference(pod, &container);
            let message = format!("Back-off restarting failed container {name} in pod {}", context::format_pod(pod));
            self.kubelet.recorder.record_warning(about, "BackOff", message);
        }
    }

    /// Generates the status and schedules its write.
    async fn report_status(&mut self, pod: &Pod, runtime_status: &PodRuntimeStatus, terminal: bool) {
        if pod_status::is_terminal(pod) && runtime_status.containers.is_empty() {
            // It ended under an earlier kubelet, whose status has more than the runtime knows.
            return;
        }
        for record in &runtime_status.containers {
            if record.is_running() {
                self.waiting_reasons.remove(record.name());
            } else if record.is_exited() && !self.termination_messages.contains_key(&record.status.id) {
                let message = termination_message::read_termination_message(&self.kubelet, pod, record).await;
                self.termination_messages.insert(record.status.id.clone(), message);
            }
        }
        self.termination_messages
            .retain(|id, _| runtime_status.containers.iter().any(|record| record.status.id == *id));
        let last = self.writer.last_status();
        let now = Timestamp::now();
        let input = PodStatusInput {
            pod,
            last_status: last.as_deref(),
            runtime_status,
            waiting: &self.waiting_reasons,
            health: &self.probes.container_health(),
            messages: &self.termination_messages,
            failure: self.failure.as_ref(),
            terminal,
            recursive_read_only: runtime_status
                .sandboxes
                .first()
                .is_some_and(|sandbox| self.kubelet.supports_recursive_read_only(&sandbox.runtime_handler)),
            restarting: !terminal && is_restarting(pod, runtime_status, last.as_deref()),
            actuated: self.allocation.as_ref().map(|allocation| &allocation.actuated),
            pending_resize: self.pending_resize.as_ref().filter(|_| !terminal),
            resize_in_progress: (self.is_resizing() && !terminal).then_some(self.resize_error.as_deref()),
            host_ip: &self.kubelet.node_ip.to_string(),
            runtime_name: &self.kubelet.runtime_name,
            // API timestamps have whole seconds; finer ones would always differ.
            now: Timestamp::from_second(now.as_second()).unwrap_or(now),
        };
        self.writer.set_status(pod_status::generate_pod_status(&input));
    }

    /// Stops the pod's containers, again if the grace period was shortened.
    async fn sync_terminating_pod(
        &mut self,
        pod: &Arc<Pod>,
        leaving: bool,
    ) -> Result<Duration, runtime::cri::CriError> {
        let runtime_status = PodRuntimeStatus::fetch(&self.kubelet.cri, context::pod_uid(pod)).await?;
        self.probes.stop_restarting_probes();
        self.probes.stop_probes_of_exited(&runtime_status);
        let eviction = self.kubelet.evictions.find(context::pod_uid(pod));
        let grace = if let Some(eviction) = eviction {
            eviction.grace_period
        } else if leaving {
            grace_period::deletion_grace_period(pod)
        } else {
            grace_period::pod_grace_period(pod)
        };
        let shorter = self.requested_grace.is_none_or(|deleted| grace < deleted);
        if shorter && !self.retry_at.contains_key(pod_termination::STOP_KEY) {
            self.requested_grace = Some(grace);
            let (kubelet, pod, runtime_status) = (self.kubelet.clone(), pod.clone(), runtime_status.clone());
            self.spawn_task(pod_termination::STOP_KEY.into(), async move {
                match pod_termination::kill_pod(&kubelet, &pod, &runtime_status, grace).await {
                    Ok(()) => TaskOutcome::Stopped,
                    Err(error) => TaskOutcome::StopFailed(error),
                }
            });
        }
        self.report_status(pod, &runtime_status, false).await;
        Ok(RESYNC_PERIOD)
    }

    /// Returns the time left until `activeDeadlineSeconds`.
    fn remaining_active_deadline(&self, pod: &Pod) -> Option<Duration> {
        let limit = pod.spec.as_ref()?.active_deadline_seconds?;
        let started = |status: &PodStatus| status.start_time.as_ref().map(|time| time.0);
        // A static pod has its status only here.
        let reported = pod.status.as_ref().and_then(started);
        let started = reported.or_else(|| self.writer.last_status().as_deref().and_then(started))?;
        let left = limit as f64 - Timestamp::now().duration_since(started).as_secs_f64();
        Some(Duration::from_secs_f64(left.max(0.0)))
    }

    /// Writes the final status and removes volumes and cgroup; returns false if something still runs.
    async fn sync_terminated_pod(&mut self, pod: &Arc<Pod>) -> Result<bool, runtime::cri::CriError> {
        let runtime_status = PodRuntimeStatus::fetch(&self.kubelet.cri, context::pod_uid(pod)).await?;
        if runtime_status.ready_sandbox().is_some() || runtime_status.containers.iter().any(ContainerRecord::is_running)
        {
            // The runtime completed an aborted request.
            self.requested_grace = None;
            self.state = PodWorkerState::Terminating;
            return Ok(false);
        }
        self.report_status(pod, &runtime_status, true).await;
        let clean = pod_termination::cleanup_pod(self.kubelet.clone(), pod.clone());
        // A busy mount or cgroup is retried.
        let ((), clean) = tokio::join!(self.writer.wait_until_written(), clean);
        self.kubelet.objects.release_pod(context::pod_uid(pod));
        Ok(clean)
    }

    /// Deletes the API object, or forgets the pod once it is deleted.
    async fn release_pod(
        &mut self,
        update: &PodUpdate,
        leaving: bool,
    ) -> Result<Option<Duration>, runtime::cri::CriError> {
        match update {
            PodUpdate::Deleted(pod) => {
                pod_termination::forget_pod(&self.kubelet, pod).await?;
                Ok(None)
            }
            PodUpdate::Sync(pod) if leaving => {
                let deleted = pod_termination::delete_pod_object(&self.kubelet, pod).await;
                Ok(Some(if deleted { RESYNC_PERIOD } else { RUNTIME_RETRY_DELAY }))
            }
            PodUpdate::Sync(_) => Ok(Some(RESYNC_PERIOD * 20)),
        }
    }
}

/// Whether all containers are being restarted: the runtime has the exit that causes it, or had it at the last report.
fn is_restarting(pod: &Pod, runtime_status: &PodRuntimeStatus, last: Option<&PodStatus>) -> bool {
    let Some(spec) = pod.spec.as_ref().filter(|spec| may_restart_all_containers(spec)) else { return false };
    let last = last.or(pod.status.as_ref());
    pod_actions::is_restarting_all_containers(spec, runtime_status)
        || last.is_some_and(|last| pod_status::has_reset_source(spec, last))
}
