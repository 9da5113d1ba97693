//! Resizing of a running pod: allocation against the node, then the runtime.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use runtime::cri::{CriError, types::LinuxContainerResources};
use sys::cgroup::CgroupLimits;

use super::{PodWorker, tasks::TaskOutcome};
use crate::{
    blocking::run_blocking,
    context::{self, KubeletContext},
    pod_sandbox,
    resize::{PendingResize, PodAllocation, ResizeMethod, resize_message},
    resources,
    runtime_status::PodRuntimeStatus,
};

/// Task key of a resize; invalid as a container name.
pub(super) const RESIZE_KEY: &str = "/resize";

/// Containers to update: name, id and new resources.
type ContainerUpdates = Vec<(String, String, LinuxContainerResources)>;

impl PodWorker {
    /// Returns the pod with its allocated resources, after taking up a change of the spec if it fits.
    pub(super) fn allocate_resources(&mut self, pod: &Arc<Pod>) -> Arc<Pod> {
        let Some(spec) = &pod.spec else { return pod.clone() };
        let root_dir = &self.kubelet.root_dir;
        let load = || PodAllocation::load(root_dir, pod).unwrap_or_else(|| PodAllocation::from_spec(spec));
        let allocation = self.allocation.get_or_insert_with(load);
        if !allocation.differs_from(spec) {
            self.pending_resize = None;
            return pod.clone();
        }
        let outcome = self.kubelet.lock_admission().resize_pod(pod);
        match outcome {
            Ok(()) => {
                allocation.allocated = PodAllocation::from_spec(spec).allocated;
                self.pending_resize = None;
                self.resize_error = None;
                let message = resize_message(pod, "Pod resize started", "");
                self.kubelet.recorder.record_normal(context::pod_reference(pod), "ResizeStarted", message);
                self.save_allocation(pod);
                pod.clone()
            }
            Err(pending) => {
                let allocated = Arc::new(allocation.allocated_pod(pod));
                self.report_pending_resize(pod, pending);
                allocated
            }
        }
    }

    fn report_pending_resize(&mut self, pod: &Pod, pending: PendingResize) {
        if self.pending_resize.as_ref() == Some(&pending) {
            return;
        }
        let prefix = format!("Pod resize {}", pending.reason);
        let message = resize_message(pod, &prefix, &pending.message);
        let event = format!("Resize{}", pending.reason);
        self.kubelet.recorder.record_warning(context::pod_reference(pod), &event, message);
        self.pending_resize = Some(pending);
    }

    /// Starts the updates and restarts that the allocation asks for. `pod` has the allocated resources.
    pub(super) fn actuate_resources(&mut self, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus) {
        let (Some(spec), Some(allocation)) = (&pod.spec, &self.allocation) else { return };
        if self.busy_keys.contains(RESIZE_KEY) || self.retry_at.contains_key(RESIZE_KEY) {
            return;
        }
        let (mut updates, mut restarts) = (ContainerUpdates::new(), Vec::new());
        for (container, method) in allocation.unapplied(spec) {
            let running = runtime_status.latest_container(&container.name).filter(|record| record.is_running());
            let Some(record) = running else { continue };
            match method {
                ResizeMethod::Restart => restarts.push((container.name.clone(), record.status.id.clone())),
                ResizeMethod::Update => {
                    let resources = resources::container_resources(spec, container, self.kubelet.capacity.memory);
                    updates.push((container.name.clone(), record.status.id.clone(), resources));
                }
            }
        }
        let old = resources::pod_cgroup_limits(&allocation.actuated_pod(pod));
        for (name, id) in restarts {
            if !self.busy_keys.contains(&name) {
                let message = format!("Container {name} resize requires restart");
                self.kill_container(pod, name, id, None, message);
            }
        }
        if !updates.is_empty() {
            let (kubelet, pod) = (self.kubelet.clone(), pod.clone());
            self.spawn_task(RESIZE_KEY.into(), async move {
                let names = updates.iter().map(|(name, ..)| name.clone()).collect();
                match update_pod_resources(&kubelet, &pod, old, updates).await {
                    Ok(()) => TaskOutcome::Resized(names),
                    Err(error) => TaskOutcome::ResizeFailed(error.to_string()),
                }
            });
        }
    }

    /// Notes that containers run with their allocated resources.
    pub(super) fn mark_resized(&mut self, pod: &Pod, containers: &[String]) {
        let Some(allocation) = &mut self.allocation else { return };
        let was_resizing = allocation.actuated != allocation.allocated;
        for name in containers {
            if let Some(resources) = allocation.allocated.get(name) {
                allocation.actuated.insert(name.clone(), resources.clone());
            }
        }
        self.resize_error = None;
        if was_resizing {
            if allocation.actuated == allocation.allocated {
                let message = resize_message(&allocation.allocated_pod(pod), "Pod resize completed", "");
                self.kubelet.recorder.record_normal(context::pod_reference(pod), "ResizeCompleted", message);
            }
            self.save_allocation(pod);
        }
    }

    /// Notes that the runtime refused a resize, which is retried.
    pub(super) fn mark_resize_failed(&mut self, pod: &Pod, error: String) {
        if self.resize_error.as_ref() != Some(&error) {
            let message = resize_message(pod, "Pod resize error", &error);
            self.kubelet.recorder.record_warning(context::pod_reference(pod), "ResizeError", message);
        }
        self.resize_error = Some(error);
    }

    /// Whether containers run with other resources than are allocated.
    pub(super) fn is_resizing(&self) -> bool {
        self.allocation.as_ref().is_some_and(|allocation| allocation.actuated != allocation.allocated)
    }

    fn save_allocation(&self, pod: &Pod) {
        let saved = self.allocation.as_ref().map(|allocation| allocation.save(&self.kubelet.root_dir, pod));
        if let Some(Err(error)) = saved {
            tracing::warn!(pod = context::format_pod(pod), %error, "kubelet: resize checkpoint not written");
        }
    }
}

/// A resize could not be applied.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error("{}", .0.message())]
    Runtime(#[from] CriError),
    #[error(transparent)]
    Cgroup(#[from] sys::cgroup::CgroupError),
}

/// Raises the pod's cgroup, updates the containers, then lowers the pod's cgroup.
async fn update_pod_resources(
    kubelet: &KubeletContext,
    pod: &Pod,
    old: CgroupLimits,
    updates: ContainerUpdates,
) -> Result<(), ResizeError> {
    let limits = resources::pod_cgroup_limits(pod);
    set_pod_limits(kubelet, pod, highest_limits(&limits, &old)).await?;
    for (_, id, resources) in updates {
        kubelet.cri.update_container_resources(&id, resources).await?;
    }
    set_pod_limits(kubelet, pod, limits).await
}

/// Returns limits that hold the containers before and after a resize; a limit that only one side has is left as it is.
fn highest_limits(a: &CgroupLimits, b: &CgroupLimits) -> CgroupLimits {
    let highest = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.max(b));
    CgroupLimits {
        cpu_shares: a.cpu_shares,
        cpu_quota: highest(a.cpu_quota, b.cpu_quota),
        memory: highest(a.memory, b.memory),
        pids: None,
    }
}

async fn set_pod_limits(kubelet: &KubeletContext, pod: &Pod, limits: CgroupLimits) -> Result<(), ResizeError> {
    let Some(cgroups) = kubelet.cgroups.clone() else { return Ok(()) };
    let path = pod_sandbox::pod_cgroup(kubelet, pod);
    Ok(run_blocking(move || cgroups.set_limits(&path, &limits)).await?)
}
