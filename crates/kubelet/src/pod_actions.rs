//! Computes the actions for a pod from its spec and runtime status, like upstream's `computePodActions`. Pure: the pod
//! worker executes them.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    jiff::Timestamp,
};
use runtime::cri::types::ContainerState;

use crate::{
    backoff::KeyedBackoff,
    pod_spec::{self, ExitAction, is_init_retried, is_sidecar},
    pod_status::ContainerHealth,
    runtime_status::{ContainerRecord, PodRuntimeStatus, labels},
};

/// Task key of sandbox work; invalid as a container name.
pub const SANDBOX_KEY: &str = "/sandbox";
/// Task key of the restart of all containers; invalid as a container name.
pub const RESET_KEY: &str = "/reset";

/// An action. Different actions may run concurrently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// Prepare the volumes and create the sandbox.
    CreateSandbox {
        /// Attempt number.
        attempt: u32,
    },
    /// Create and start a container.
    StartContainer {
        /// Container name.
        name: String,
        /// Restart count.
        attempt: u32,
        /// A container that was created but never started, to be removed first.
        replaces: Option<String>,
    },
    /// Kill a container whose spec changed.
    KillContainer {
        /// Container name.
        name: String,
        /// Container id.
        id: String,
    },
    /// Remove all containers, in this order; the next computation starts them anew.
    ResetContainers {
        /// The containers.
        containers: Vec<ContainerReset>,
    },
}

/// A container to remove before the pod restarts in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerReset {
    /// Container name.
    pub name: String,
    /// Container id.
    pub id: String,
    /// Whether it must be killed first.
    pub kill: bool,
}

/// The actions to take now.
#[derive(Debug, Default, PartialEq)]
pub struct PodActions {
    /// Actions.
    pub actions: Vec<PodAction>,
    /// Containers in crash-loop back-off, with the enforced delay.
    pub crash_backoffs: Vec<(String, Duration)>,
    /// Time until the next computation.
    pub next_check: Option<Duration>,
    /// Whether no container will run again.
    pub finished: bool,
}

/// Inputs of the computation.
pub struct PodActionInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The runtime's view of the pod.
    pub runtime_status: &'a PodRuntimeStatus,
    /// Crash-loop back-off.
    pub backoffs: &'a KeyedBackoff,
    /// Keys of running tasks.
    pub busy: &'a HashSet<String>,
    /// Whether a task runs; those in `busy` may also wait for their next attempt.
    pub has_tasks: bool,
    /// Probe results of running containers, by id.
    pub health: &'a HashMap<String, ContainerHealth>,
    /// Current time.
    pub now: Timestamp,
}

/// Computes the actions.
pub fn compute_pod_actions(input: &PodActionInput<'_>) -> PodActions {
    let mut plan = PodActions::default();
    let Some(spec) = &input.pod.spec else { return plan };
    if is_restarting_all_containers(spec, input.runtime_status) {
        // The containers' own work ends first.
        if !input.has_tasks {
            plan.actions
                .push(PodAction::ResetContainers { containers: containers_to_reset(spec, input.runtime_status) });
        }
        return plan;
    }
    if is_pod_finished(spec, input.runtime_status) {
        return PodActions { finished: true, ..plan };
    }
    let Some(sandbox) = input.runtime_status.ready_sandbox() else {
        if !input.busy.contains(SANDBOX_KEY) {
            plan.actions.push(PodAction::CreateSandbox { attempt: input.runtime_status.next_sandbox_attempt() });
        }
        return plan;
    };
    plan_ephemeral_containers(&mut plan, input, spec);
    if plan_init_containers(&mut plan, input, spec, &sandbox.id) {
        plan_containers(&mut plan, input, spec);
    }
    plan
}

/// Whether a container has exited with a code whose rule restarts all containers of the pod in place.
pub fn is_restarting_all_containers(spec: &PodSpec, runtime_status: &PodRuntimeStatus) -> bool {
    let latest = |container: &Container| {
        let record = runtime_status.latest_container(&container.name);
        record.is_some_and(|record| is_reset_source(container, record))
    };
    spec.init_containers.iter().flatten().chain(&spec.containers).any(latest)
}

fn is_reset_source(container: &Container, record: &ContainerRecord) -> bool {
    record.is_exited() && pod_spec::restarts_all_containers(container, record.status.exit_code)
}

/// Returns the containers to remove: regular ones before init containers, and last those whose exit is the cause, so that
/// the restart goes on after one of the kubelet.
fn containers_to_reset(spec: &PodSpec, runtime_status: &PodRuntimeStatus) -> Vec<ContainerReset> {
    let (mut resets, mut sources) = (Vec::new(), Vec::new());
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        for record in runtime_status.containers.iter().filter(|record| record.name() == container.name) {
            let (name, id) = (container.name.clone(), record.status.id.clone());
            let list = if is_reset_source(container, record) { &mut sources } else { &mut resets };
            list.push(ContainerReset { name, id, kill: !record.is_exited() });
        }
    }
    resets.extend(sources);
    resets
}

/// Plans init containers in order; returns whether the regular containers may start.
fn plan_init_containers(plan: &mut PodActions, input: &PodActionInput<'_>, spec: &PodSpec, sandbox: &str) -> bool {
    let in_sandbox = |container: &Container| {
        input.runtime_status.latest_container(&container.name).is_some_and(|record| record.sandbox == sandbox)
    };
    let begun = spec.containers.iter().any(in_sandbox);
    for container in spec.init_containers.iter().flatten() {
        let record = input.runtime_status.latest_container(&container.name);
        let passed = match record {
            Some(record) if is_sidecar(container) => record.is_running() && input.has_started(record),
            Some(record) => record.is_exited() && record.status.exit_code == 0 && record.sandbox == sandbox,
            None => false,
        };
        let running = record.is_some_and(ContainerRecord::is_running);
        match record {
            Some(record) if running && is_sidecar(container) => kill_if_changed(plan, input, container, record),
            _ if !passed && !running && (is_sidecar(container) || !begun) => plan_start(plan, input, container, record),
            _ => {}
        }
        if !passed && !begun {
            return false;
        }
    }
    true
}

/// Plans the regular containers, all at once.
fn plan_containers(plan: &mut PodActions, input: &PodActionInput<'_>, spec: &PodSpec) {
    for container in &spec.containers {
        let record = input.runtime_status.latest_container(&container.name);
        match record {
            Some(record) if record.is_running() => kill_if_changed(plan, input, container, record),
            Some(record) if record.is_exited() && !should_restart(spec, container, record) => {}
            record => plan_start(plan, input, container, record),
        }
    }
}

impl PodActionInput<'_> {
    /// Whether a running container has passed its startup probe, if any.
    fn has_started(&self, record: &ContainerRecord) -> bool {
        self.health.get(&record.status.id).is_none_or(|health| health.started)
    }
}

/// Plans ephemeral containers, which run once, also beside init containers.
fn plan_ephemeral_containers(plan: &mut PodActions, input: &PodActionInput<'_>, spec: &PodSpec) {
    for ephemeral in spec.ephemeral_containers.iter().flatten() {
        if input.runtime_status.latest_container(&ephemeral.name).is_none() {
            plan_start(plan, input, &pod_spec::ephemeral_as_container(ephemeral), None);
        }
    }
}

/// Whether an exited container is to be restarted.
fn should_restart(spec: &PodSpec, container: &Container, record: &ContainerRecord) -> bool {
    pod_spec::exit_action(spec, container, record.status.exit_code) != ExitAction::Stop
}

/// Whether no container of the pod will run again.
fn is_pod_finished(spec: &PodSpec, runtime_status: &PodRuntimeStatus) -> bool {
    let over = |container: &Container| {
        runtime_status
            .latest_container(&container.name)
            .is_some_and(|record| record.is_exited() && !should_restart(spec, container, record))
    };
    let failed = |container: &Container| {
        runtime_status.latest_container(&container.name).is_some_and(|record| {
            let code = record.status.exit_code;
            record.is_exited() && code != 0 && !is_init_retried(spec, container, code)
        })
    };
    let mut init = spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container));
    let init_failed = init.any(failed);
    init_failed || (!spec.containers.is_empty() && spec.containers.iter().all(over))
}

fn kill_if_changed(plan: &mut PodActions, input: &PodActionInput<'_>, container: &Container, record: &ContainerRecord) {
    let made_of = record.status.annotations.get(labels::HASH);
    if made_of.is_some_and(|hash| *hash != container_hash(container)) && !input.busy.contains(&container.name) {
        plan.actions.push(PodAction::KillContainer { name: container.name.clone(), id: record.status.id.clone() });
    }
}

/// Plans a start now or after the back-off.
fn plan_start(
    plan: &mut PodActions,
    input: &PodActionInput<'_>,
    container: &Container,
    record: Option<&ContainerRecord>,
) {
    if input.busy.contains(&container.name) {
        return;
    }
    let name = container.name.clone();
    let Some(record) = record else {
        return plan.actions.push(PodAction::StartContainer { name, attempt: 0, replaces: None });
    };
    if record.state() == ContainerState::ContainerCreated {
        let replaces = Some(record.status.id.clone());
        return plan.actions.push(PodAction::StartContainer { name, attempt: record.attempt(), replaces });
    }
    let failed = Timestamp::from_nanosecond(record.status.finished_at.into()).unwrap_or(input.now);
    match input.backoffs.remaining_delay(&backoff_key(container), failed, input.now) {
        Some((delay, left)) => {
            plan.crash_backoffs.push((name, delay));
            plan.next_check = Some(plan.next_check.map_or(left, |again| again.min(left)));
        }
        None => {
            input.backoffs.record_retry(&backoff_key(container), failed, input.now);
            plan.actions.push(PodAction::StartContainer { name, attempt: record.attempt() + 1, replaces: None });
        }
    }
}

/// Returns the back-off key; a changed container starts afresh.
fn backoff_key(container: &Container) -> String {
    format!("{}_{}", container.name, container_hash(container))
}

/// Hashes the fields whose change restarts a container (FNV-1a).
pub fn container_hash(container: &Container) -> String {
    let text = format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default());
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

#[cfg(test)]
mod tests;
