//! Generates the API status of a pod from its spec, runtime status and container waiting reasons.
//!
//! Pure: equal inputs give an equal status, so that an unchanged status is not written.

mod conditions;
mod phase;
mod restarting;

pub use conditions::is_kubelet_condition;
pub use restarting::has_reset_source;

use std::collections::HashMap;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, ContainerUser, HostIP, LinuxContainerUser, Pod, PodIP, PodSpec, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use crate::{
    context::time_from_nanos,
    pod_spec::{ephemeral_as_container, is_recursive_read_only, is_sidecar},
    resize::{ContainerResources, PendingResize},
    resources,
    runtime_status::{ContainerRecord, PodRuntimeStatus},
};

/// Reason why a container waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingReason {
    /// CamelCase reason: `ErrImagePull`, `CrashLoopBackOff`…
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
}

/// Failure of the whole pod, independent of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFailure {
    /// CamelCase reason.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
}

/// Reason of a pod that the kubelet evicted.
pub const EVICTED: &str = "Evicted";

/// Probe results of a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerHealth {
    /// Whether the startup probe succeeded or is absent.
    pub started: bool,
    /// Whether the readiness probe succeeds or is absent.
    pub ready: bool,
}

/// Inputs of a pod status.
pub struct PodStatusInput<'a> {
    /// The pod with the API server's status.
    pub pod: &'a Pod,
    /// The last generated status, possibly not written yet.
    pub last_status: Option<&'a PodStatus>,
    /// The runtime's view of the pod.
    pub runtime_status: &'a PodRuntimeStatus,
    /// Waiting reasons by container name.
    pub waiting: &'a HashMap<String, WaitingReason>,
    /// Probe results of running containers by id; others are ready.
    pub health: &'a HashMap<String, ContainerHealth>,
    /// Termination messages by container id.
    pub messages: &'a HashMap<String, String>,
    /// Failure of the pod as a whole.
    pub failure: Option<&'a PodFailure>,
    /// Whether nothing of the pod runs or will run.
    pub terminal: bool,
    /// Whether all containers are being restarted in place.
    pub restarting: bool,
    /// Whether the runtime can mount recursively read-only.
    pub recursive_read_only: bool,
    /// Resources that the containers run with, by name.
    pub actuated: Option<&'a ContainerResources>,
    /// A resize that does not fit the node.
    pub pending_resize: Option<&'a PendingResize>,
    /// A resize that is being applied, with the runtime's error if it refused.
    pub resize_in_progress: Option<Option<&'a str>>,
    /// The node's IP.
    pub host_ip: &'a str,
    /// The runtime's name, the prefix of container ids.
    pub runtime_name: &'a str,
    /// Current time.
    pub now: Timestamp,
}

/// Whether the pod's reported phase is terminal.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// Generates the status.
pub fn generate_pod_status(input: &PodStatusInput<'_>) -> PodStatus {
    let spec = input.pod.spec.clone().unwrap_or_default();
    let old = input.last_status.or(input.pod.status.as_ref()).cloned().unwrap_or_default();
    let init_list = spec.init_containers.as_deref().unwrap_or_default();
    // A rejected pod has no container statuses.
    let refused = input.failure.is_some() && input.runtime_status.containers.is_empty();
    let init: Vec<_> =
        init_list.iter().map(|container| input.container_status(container, "PodInitializing", true)).collect();
    let initialized = init.iter().all(|status| is_init_passed(&spec, status));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let containers: Vec<_> =
        spec.containers.iter().map(|container| input.container_status(container, waiting, false)).collect();
    let phase = match input.failure {
        Some(_) => "Failed",
        None => phase::pod_phase(&spec, &init, &containers, input.terminal, has_initialized(&old)),
    };
    let ips = input.pod_ips(&spec, &old);
    let mut status = PodStatus {
        phase: Some(phase.into()),
        reason: input.failure.map(|verdict| verdict.reason.clone()).or(old.reason.clone()),
        message: input.failure.map(|verdict| verdict.message.clone()).or(old.message.clone()),
        host_ip: Some(input.host_ip.into()),
        host_ips: Some(vec![HostIP { ip: input.host_ip.into() }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: old.start_time.clone().or(Some(Time(input.now))),
        qos_class: old.qos_class.clone().or(Some(resources::pod_qos_class(&spec).as_str().into())),
        init_container_statuses: (!init.is_empty() && !refused).then_some(init),
        container_statuses: (!containers.is_empty() && !refused).then_some(containers),
        ephemeral_container_statuses: input.ephemeral_container_statuses(&spec),
        observed_generation: input.pod.metadata.generation,
        ..old.clone()
    };
    status.conditions = Some(conditions::compute_conditions(input, &spec, &status, &old));
    status
}

impl PodStatusInput<'_> {
    fn pod_ips(&self, spec: &PodSpec, old: &PodStatus) -> Vec<String> {
        if spec.host_network == Some(true) {
            return vec![self.host_ip.into()];
        }
        let ips = self.runtime_status.pod_ips();
        if !ips.is_empty() {
            return ips;
        }
        old.pod_ips.iter().flatten().map(|address| address.ip.clone()).collect()
    }

    fn container_status(&self, container: &Container, default_reason: &'static str, init: bool) -> ContainerStatus {
        let latest = self.runtime_status.latest_container(&container.name);
        let mut status = ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            volume_mounts: volume_mount_statuses(container, self.recursive_read_only),
            ..Default::default()
        };
        let waiting = self.waiting.get(&container.name);
        let old = self.old_container_status(&container.name);
        let Some(record) = latest else {
            self.fill_from_old_status(&mut status, old);
            status.state = Some(self.absent_state(waiting, default_reason));
            status.started = Some(false);
            if self.is_reset(old) {
                let count = old.map_or(0, |old| old.restart_count);
                restarting::mark_container_reset(&mut status, count);
            }
            return status;
        };
        self.fill_from_runtime(&mut status, container, record);
        let previous = self.runtime_status.previous_container(&container.name).filter(|record| record.is_exited());
        let previous = previous.map(|record| self.terminated_state(record));
        let last = || old.and_then(|old| restarting::last_state_of_removed(old, status.container_id.as_deref()));
        status.last_state = previous.or_else(last).or(Some(ContainerState::default()));
        status.state = Some(if record.is_running() {
            let running = ContainerStateRunning { started_at: time_from_nanos(record.status.started_at) };
            ContainerState { running: Some(running), ..Default::default() }
        } else if let (Some(waiting), false) = (waiting, self.terminal) {
            if record.is_exited() {
                status.last_state = Some(self.terminated_state(record));
            }
            waiting_state(waiting.reason, Some(&waiting.message))
        } else if record.is_exited() {
            self.terminated_state(record)
        } else {
            self.absent_state(None, default_reason)
        });
        let healthy = ContainerHealth { started: true, ready: true };
        let health = self.health.get(&record.status.id).copied().unwrap_or(healthy);
        status.started = Some(record.is_running() && health.started);
        // An init container is ready when it succeeded.
        status.ready = if init && !is_sidecar(container) {
            has_succeeded(&status)
        } else {
            record.is_running() && health.started && health.ready
        };
        status
    }

    /// Returns the last reported status of a container.
    fn old_container_status(&self, name: &str) -> Option<&ContainerStatus> {
        let old = self.last_status.or(self.pod.status.as_ref())?;
        let lists = [&old.container_statuses, &old.init_container_statuses, &old.ephemeral_container_statuses];
        lists.into_iter().flat_map(|list| list.iter().flatten()).find(|status| status.name == name)
    }

    /// Keeps the restart count and the last end of a container that the runtime lacks.
    fn fill_from_old_status(&self, status: &mut ContainerStatus, old: Option<&ContainerStatus>) {
        let Some(old) = old else { return };
        status.restart_count = old.restart_count;
        status.last_state = old.last_state.clone();
        let ran = old.state.as_ref().is_some_and(|state| state.running.is_some());
        let ended = |state: &ContainerState| state.terminated.is_some();
        if ran && !self.terminal && !old.last_state.as_ref().is_some_and(ended) {
            let message =
                "The container could not be located when the pod was deleted.  The container used to be Running";
            status.last_state = Some(unknown_end(message));
            status.restart_count += i32::from(self.pod.metadata.deletion_timestamp.is_none());
        }
    }

    /// Whether the runtime lacks a container because all containers of the pod are restarted.
    fn is_reset(&self, old: Option<&ContainerStatus>) -> bool {
        let waits = |status: &ContainerStatus| status.state.as_ref().is_none_or(|state| state.waiting.is_some());
        self.restarting && old.is_some_and(|old| !waits(old))
    }

    /// Returns the statuses of the ephemeral containers, which are neither ready nor started in upstream's terms.
    fn ephemeral_container_statuses(&self, spec: &PodSpec) -> Option<Vec<ContainerStatus>> {
        let status = |ephemeral| {
            let container = ephemeral_as_container(ephemeral);
            let mut status = self.container_status(&container, "ContainerCreating", false);
            (status.ready, status.started) = (false, None);
            status
        };
        Some(spec.ephemeral_containers.as_ref()?.iter().map(status).collect())
    }

    fn fill_from_runtime(&self, status: &mut ContainerStatus, container: &Container, record: &ContainerRecord) {
        status.restart_count = record.attempt() as i32;
        status.container_id = Some(self.container_id(&record.status.id));
        status.image_id = record.status.image_ref.clone();
        if let Some(image) = record.status.image.as_ref().filter(|image| !image.image.is_empty()) {
            status.image = image.image.clone();
        }
        status.user = record.status.user.as_ref().map(|user| ContainerUser {
            linux: user.linux.as_ref().map(|linux| LinuxContainerUser {
                uid: linux.uid,
                gid: linux.gid,
                supplemental_groups: Some(linux.supplemental_groups.clone()).filter(|groups| !groups.is_empty()),
            }),
        });
        let actuated = self.actuated.and_then(|actuated| actuated.get(&container.name)).cloned();
        status.resources = actuated.or_else(|| container.resources.clone()).or_else(|| Some(Default::default()));
        status.allocated_resources = container.resources.as_ref().and_then(|resources| resources.requests.clone());
    }

    fn container_id(&self, id: &str) -> String {
        format!("{}://{id}", self.runtime_name)
    }

    /// Returns the state of a container that the runtime lacks: waiting, or lost if the pod is terminal.
    fn absent_state(&self, waiting: Option<&WaitingReason>, default_reason: &'static str) -> ContainerState {
        if !self.terminal {
            let message = waiting.map(|waiting| waiting.message.as_str()).filter(|message| !message.is_empty());
            return waiting_state(waiting.map_or(default_reason, |waiting| waiting.reason), message);
        }
        unknown_end("The container could not be located when the pod was terminated")
    }

    fn terminated_state(&self, record: &ContainerRecord) -> ContainerState {
        let status = &record.status;
        let default = if status.exit_code == 0 { "Completed" } else { "Error" };
        let reason = if status.reason.is_empty() { default } else { &status.reason };
        let recorded = self.messages.get(&status.id).filter(|message| !message.is_empty());
        let message = recorded.or(Some(&status.message)).filter(|message| !message.is_empty()).cloned();
        let terminated = ContainerStateTerminated {
            exit_code: status.exit_code,
            reason: Some(reason.into()),
            message,
            started_at: time_from_nanos(status.started_at),
            finished_at: time_from_nanos(status.finished_at),
            container_id: Some(self.container_id(&status.id)),
            signal: None,
        };
        ContainerState { terminated: Some(terminated), ..Default::default() }
    }
}

/// Returns the end of a container that the runtime has lost.
fn unknown_end(message: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some(message.into()),
        ..Default::default()
    };
    ContainerState { terminated: Some(terminated), ..Default::default() }
}

fn waiting_state(reason: &str, message: Option<&str>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.into()), message: message.map(Into::into) };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

fn volume_mount_statuses(container: &Container, supports_recursive: bool) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let status = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only.filter(|read_only| *read_only),
        recursive_read_only: (mount.read_only == Some(true)).then(|| {
            let recursive = is_recursive_read_only(mount, supports_recursive).unwrap_or(false);
            if recursive { "Enabled".into() } else { "Disabled".into() }
        }),
        ..Default::default()
    };
    Some(mounts.iter().map(status).collect())
}

/// Whether the pod's regular containers may have started.
fn has_initialized(old: &PodStatus) -> bool {
    old.conditions.iter().flatten().any(|condition| condition.type_ == "Initialized" && condition.status == "True")
}

/// Whether a container exited with code zero.
pub fn has_succeeded(status: &ContainerStatus) -> bool {
    let terminated = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    terminated.is_some_and(|terminated| terminated.exit_code == 0)
}

/// Whether an init container no longer blocks the regular containers: it succeeded, or it is a sidecar that has
/// started.
pub fn is_init_passed(spec: &PodSpec, status: &ContainerStatus) -> bool {
    let died = |state: &Option<ContainerState>| state.as_ref().is_some_and(|state| state.terminated.is_some());
    let ran = status.started == Some(true) || died(&status.state) || died(&status.last_state);
    has_succeeded(status) || (is_sidecar_status(spec, status) && ran)
}

/// Whether this is the status of a sidecar.
pub fn is_sidecar_status(spec: &PodSpec, status: &ContainerStatus) -> bool {
    spec.init_containers.iter().flatten().any(|container| container.name == status.name && is_sidecar(container))
}

#[cfg(test)]
mod tests;
