//! The phase of a pod, by upstream's rules.

use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodSpec};

use super::restarting::is_reset_end;
use crate::pod_spec::{ExitAction, exit_action, is_sidecar};

/// Container counts by state.
#[derive(Default)]
struct ContainerStateCounts {
    unknown: usize,
    waiting: usize,
    running: usize,
    stopped: usize,
    /// Stopped containers that are not restarted.
    stopped_for_good: usize,
    succeeded: usize,
}

/// Progress of the init containers.
#[derive(Default)]
struct InitProgress {
    pending: usize,
    /// Sidecars that have not started.
    pending_sidecars: usize,
    /// Failed ones that are not retried.
    failed: usize,
}

/// Computes the phase. `terminal` says that nothing of the pod runs or will run; `initialized` that its regular
/// containers may have started before.
pub fn pod_phase(
    spec: &PodSpec,
    init: &[ContainerStatus],
    containers: &[ContainerStatus],
    terminal: bool,
    initialized: bool,
) -> &'static str {
    let (mut progress, mut count) = (InitProgress::default(), ContainerStateCounts::default());
    for container in spec.init_containers.iter().flatten() {
        let status = init.iter().find(|status| status.name == container.name);
        match is_sidecar(container) {
            true => add_sidecar(&mut progress, &mut count, status),
            false => add_init_container(&mut progress, spec, container, status),
        }
    }
    for container in &spec.containers {
        let status = containers.iter().find(|status| status.name == container.name);
        add_container(&mut count, spec, container, status);
    }
    if progress.failed > 0 {
        return "Failed";
    }
    let done = if count.stopped == count.succeeded { "Succeeded" } else { "Failed" };
    let uninitialized = progress.pending > 0 || (progress.pending_sidecars > 0 && !initialized);
    match () {
        // A pod that ended before its containers started has failed.
        () if terminal && (uninitialized || count.waiting > 0 || count.unknown > 0) => "Failed",
        () if uninitialized || count.waiting > 0 => "Pending",
        () if count.running > 0 && count.unknown == 0 => "Running",
        () if count.stopped > 0 && count.unknown == 0 => match count.stopped == count.stopped_for_good {
            _ if terminal => done,
            true => done,
            false => "Running",
        },
        () => "Pending",
    }
}

fn terminated(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state.and_then(|state| state.terminated.as_ref())
}

/// Returns the end of a stopped container: its state, or the last one while it waits for a restart.
fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    terminated(status.state.as_ref()).or_else(|| terminated(status.last_state.as_ref()))
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn is_restarted(spec: &PodSpec, container: &Container, end: &ContainerStateTerminated) -> bool {
    is_reset_end(end) || exit_action(spec, container, end.exit_code) != ExitAction::Stop
}

fn add_init_container(
    progress: &mut InitProgress,
    spec: &PodSpec,
    container: &Container,
    status: Option<&ContainerStatus>,
) {
    match status.filter(|status| !is_running(status)).and_then(last_end) {
        None => progress.pending += 1,
        Some(end) if end.exit_code == 0 => {}
        Some(end) if is_restarted(spec, container, end) => progress.pending += 1,
        Some(_) => progress.failed += 1,
    }
}

fn add_sidecar(progress: &mut InitProgress, count: &mut ContainerStateCounts, status: Option<&ContainerStatus>) {
    let Some(status) = status else { return count.unknown += 1 };
    if is_running(status) {
        progress.pending_sidecars += usize::from(status.started != Some(true));
        count.running += 1;
    } else if last_end(status).is_none() {
        progress.pending_sidecars += 1;
        count.waiting += 1;
    }
}

fn add_container(
    count: &mut ContainerStateCounts,
    spec: &PodSpec,
    container: &Container,
    status: Option<&ContainerStatus>,
) {
    let Some(status) = status else { return count.unknown += 1 };
    if is_running(status) {
        count.running += 1;
    } else if let Some(end) = last_end(status) {
        count.stopped += 1;
        count.stopped_for_good += usize::from(!is_restarted(spec, container, end));
        let ended = terminated(status.state.as_ref());
        count.succeeded += usize::from(ended.is_some_and(|ended| ended.exit_code == 0));
    } else {
        count.waiting += 1;
    }
}
