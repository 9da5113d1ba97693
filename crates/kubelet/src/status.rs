//! A pod's status, computed from its spec, the runtime's truth and what the worker knows about containers that do not run.
//!
//! Pure: the same inputs give the same status, so that nothing is written when nothing changed.

use std::collections::HashMap;

use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use crate::{
    agent::time,
    conditions,
    plan::{is_sidecar, policy},
    resources,
    truth::{Seen, Truth},
};

/// Why a container does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// For programs: `ErrImagePull`, `CrashLoopBackOff`…
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A verdict on the whole pod that its containers do not tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For programs.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What probes say of a running container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Its startup probe succeeded, or it has none.
    pub started: bool,
    /// Its readiness probe succeeds, or it has none.
    pub ready: bool,
}

/// Everything that a status is computed from.
pub struct View<'a> {
    /// The pod, with the status that the API server has.
    pub pod: &'a Pod,
    /// The status that was computed last, which may be on its way to the API server.
    pub last: Option<&'a PodStatus>,
    /// What the runtime says.
    pub truth: &'a Truth,
    /// Containers that do not run, by name.
    pub waiting: &'a HashMap<String, Waiting>,
    /// Running containers with probes, by id; the others are ready.
    pub health: &'a HashMap<String, Health>,
    /// What ended containers left to say, by id.
    pub messages: &'a HashMap<String, String>,
    /// The pod has failed for a reason of its own.
    pub verdict: Option<&'a Verdict>,
    /// Nothing of the pod runs or will run.
    pub terminal: bool,
    /// The node's address.
    pub host_ip: &'a str,
    /// The runtime's name, which container ids begin with.
    pub runtime_name: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// Computes the status.
pub fn compute(view: &View<'_>) -> PodStatus {
    let spec = view.pod.spec.clone().unwrap_or_default();
    let old = view.last.or(view.pod.status.as_ref()).cloned().unwrap_or_default();
    let init_list = spec.init_containers.as_deref().unwrap_or_default();
    // A pod that was refused has no containers to speak of.
    let refused = view.verdict.is_some() && view.truth.containers.is_empty();
    let init: Vec<_> = init_list.iter().map(|container| view.container(container, "PodInitializing", true)).collect();
    let initialized = init.iter().all(|status| passed(&spec, status));
    let waiting = if initialized { "ContainerCreating" } else { "PodInitializing" };
    let containers: Vec<_> =
        spec.containers.iter().map(|container| view.container(container, waiting, false)).collect();
    let phase = match view.verdict {
        Some(_) => "Failed",
        None => phase(&spec, &init, &containers, view.terminal),
    };
    let ips = view.ips(&spec, &old);
    let mut status = PodStatus {
        phase: Some(phase.into()),
        reason: view.verdict.map(|verdict| verdict.reason.into()).or(old.reason.clone()),
        message: view.verdict.map(|verdict| verdict.message.clone()).or(old.message.clone()),
        host_ip: Some(view.host_ip.into()),
        host_ips: Some(vec![HostIP { ip: view.host_ip.into() }]),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| PodIP { ip }).collect()),
        start_time: old.start_time.clone().or(Some(Time(view.now))),
        qos_class: old.qos_class.clone().or(Some(resources::qos(&spec).name().into())),
        init_container_statuses: (!init.is_empty() && !refused).then_some(init),
        container_statuses: (!containers.is_empty() && !refused).then_some(containers),
        ephemeral_container_statuses: ephemeral(&spec),
        observed_generation: view.pod.metadata.generation,
        ..old.clone()
    };
    status.conditions = Some(conditions::compute(view, &spec, &status, &old));
    status
}

impl View<'_> {
    fn ips(&self, spec: &PodSpec, old: &PodStatus) -> Vec<String> {
        if spec.host_network == Some(true) {
            return vec![self.host_ip.into()];
        }
        let ips = self.truth.ips();
        if !ips.is_empty() {
            return ips;
        }
        old.pod_ips.iter().flatten().map(|address| address.ip.clone()).collect()
    }

    fn container(&self, container: &Container, default_reason: &'static str, init: bool) -> ContainerStatus {
        let latest = self.truth.latest(&container.name);
        let mut status = ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            volume_mounts: mounts(container),
            ..Default::default()
        };
        let waiting = self.waiting.get(&container.name);
        let Some(seen) = latest else {
            status.state = Some(self.absent(waiting, default_reason));
            status.started = Some(false);
            return status;
        };
        self.fill(&mut status, container, seen);
        let previous = self.truth.previous(&container.name).filter(|seen| seen.exited());
        status.last_state = previous.map(|seen| self.terminated(seen)).or(Some(ContainerState::default()));
        status.state = Some(if seen.running() {
            let running = ContainerStateRunning { started_at: time(seen.status.started_at) };
            ContainerState { running: Some(running), ..Default::default() }
        } else if let (Some(waiting), false) = (waiting, self.terminal) {
            if seen.exited() {
                status.last_state = Some(self.terminated(seen));
            }
            waiting_state(waiting.reason, Some(&waiting.message))
        } else if seen.exited() {
            self.terminated(seen)
        } else {
            self.absent(None, default_reason)
        });
        let healthy = Health { started: true, ready: true };
        let health = self.health.get(&seen.status.id).copied().unwrap_or(healthy);
        status.started = Some(seen.running() && health.started);
        // An init container is ready when it has done its work.
        status.ready = if init && !is_sidecar(container) {
            succeeded(&status)
        } else {
            seen.running() && health.started && health.ready
        };
        status
    }

    fn fill(&self, status: &mut ContainerStatus, container: &Container, seen: &Seen) {
        status.restart_count = seen.attempt() as i32;
        status.container_id = Some(self.id(&seen.status.id));
        status.image_id = seen.status.image_ref.clone();
        if let Some(image) = seen.status.image.as_ref().filter(|image| !image.image.is_empty()) {
            status.image = image.image.clone();
        }
        status.resources = container.resources.clone().or_else(|| Some(Default::default()));
        status.allocated_resources = container.resources.as_ref().and_then(|resources| resources.requests.clone());
    }

    fn id(&self, id: &str) -> String {
        format!("{}://{id}", self.runtime_name)
    }

    /// A container that the runtime does not have: still to come, or never to come.
    fn absent(&self, waiting: Option<&Waiting>, default_reason: &'static str) -> ContainerState {
        if !self.terminal {
            let message = waiting.map(|waiting| waiting.message.as_str()).filter(|message| !message.is_empty());
            return waiting_state(waiting.map_or(default_reason, |waiting| waiting.reason), message);
        }
        let terminated = ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some("The container could not be located when the pod was terminated".into()),
            ..Default::default()
        };
        ContainerState { terminated: Some(terminated), ..Default::default() }
    }

    fn terminated(&self, seen: &Seen) -> ContainerState {
        let status = &seen.status;
        let default = if status.exit_code == 0 { "Completed" } else { "Error" };
        let reason = if status.reason.is_empty() { default } else { &status.reason };
        let told = self.messages.get(&status.id).filter(|message| !message.is_empty());
        let message = told.or(Some(&status.message)).filter(|message| !message.is_empty()).cloned();
        let terminated = ContainerStateTerminated {
            exit_code: status.exit_code,
            reason: Some(reason.into()),
            message,
            started_at: time(status.started_at),
            finished_at: time(status.finished_at),
            container_id: Some(self.id(&status.id)),
            signal: None,
        };
        ContainerState { terminated: Some(terminated), ..Default::default() }
    }
}

fn waiting_state(reason: &str, message: Option<&str>) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: Some(reason.into()), message: message.map(Into::into) };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

fn mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let status = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only.filter(|read_only| *read_only),
        recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".into()),
        ..Default::default()
    };
    Some(mounts.iter().map(status).collect())
}

/// Ephemeral containers join a pod that runs, so the pod goes on and they are refused one by one.
fn ephemeral(spec: &PodSpec) -> Option<Vec<ContainerStatus>> {
    let containers = spec.ephemeral_containers.as_ref()?;
    let message = "spec.ephemeralContainers is not supported by this node";
    let status = |container: &k8s_openapi::api::core::v1::EphemeralContainer| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting_state("UnsupportedPodFeature", Some(message))),
        ..Default::default()
    };
    Some(containers.iter().map(status).collect())
}

/// Whether a container ended well.
pub fn succeeded(status: &ContainerStatus) -> bool {
    let terminated = status.state.as_ref().and_then(|state| state.terminated.as_ref());
    terminated.is_some_and(|terminated| terminated.exit_code == 0)
}

/// Whether an init container is no longer in the way of the pod's own containers: it has done its work, or it is a sidecar
/// that has started, be it that it died since.
pub fn passed(spec: &PodSpec, status: &ContainerStatus) -> bool {
    let died = |state: &Option<ContainerState>| state.as_ref().is_some_and(|state| state.terminated.is_some());
    let ran = status.started == Some(true) || died(&status.state) || died(&status.last_state);
    succeeded(status) || (is_sidecar_status(spec, status) && ran)
}

/// Whether this is the status of a sidecar.
pub fn is_sidecar_status(spec: &PodSpec, status: &ContainerStatus) -> bool {
    spec.init_containers.iter().flatten().any(|container| container.name == status.name && is_sidecar(container))
}

/// How containers are counted for the phase.
#[derive(Default)]
struct Count {
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
}

impl Count {
    fn of(statuses: &[ContainerStatus]) -> Self {
        let mut count = Self::default();
        for status in statuses {
            let state = status.state.clone().unwrap_or_default();
            let died = status.last_state.as_ref().is_some_and(|state| state.terminated.is_some());
            match state {
                ContainerState { running: Some(_), .. } => count.running += 1,
                ContainerState { terminated: Some(_), .. } => count.stopped += 1,
                _ if died => count.stopped += 1,
                _ => count.waiting += 1,
            }
            count.succeeded += usize::from(succeeded(status));
        }
        count
    }
}

fn phase(spec: &PodSpec, init: &[ContainerStatus], containers: &[ContainerStatus], terminal: bool) -> &'static str {
    let failed = |status: &ContainerStatus| {
        let terminated = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        terminated.is_some_and(|terminated| terminated.exit_code != 0) && !is_sidecar_status(spec, status)
    };
    let uninitialized = init.iter().any(|status| !passed(spec, status));
    if init.iter().any(failed) && policy(spec) == "Never" {
        return "Failed";
    }
    let count = Count::of(containers);
    let done = if count.stopped == count.succeeded { "Succeeded" } else { "Failed" };
    if terminal {
        return if uninitialized || count.waiting > 0 { "Failed" } else { done };
    }
    if uninitialized || count.waiting > 0 {
        return "Pending";
    }
    if count.running > 0 {
        return "Running";
    }
    match policy(spec) {
        _ if count.stopped == 0 => "Pending",
        "Always" => "Running",
        _ if done == "Succeeded" => "Succeeded",
        "Never" => "Failed",
        _ => "Running",
    }
}

#[cfg(test)]
mod tests;
