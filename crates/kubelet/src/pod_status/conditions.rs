//! Pod conditions with upstream's types, reasons and messages.

use k8s_openapi::{
    api::core::v1::{ContainerStatus, PodCondition, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{EVICTED, PodStatusInput, is_init_passed, is_sidecar_status};
use crate::pod_spec::may_restart_all_containers;

/// Conditions owned by the kubelet; others are preserved.
const OWNED_CONDITIONS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "AllContainersRestarting"];

/// Conditions of resizes, present while they hold.
const RESIZE_CONDITIONS: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// Condition types that the kubelet writes, also those that it does not compute from the containers' state.
const KUBELET_CONDITIONS: [&str; 8] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizeInProgress",
    "PodResizePending",
    "AllContainersRestarting",
];

/// Whether the kubelet writes conditions of this type.
pub fn is_kubelet_condition(kind: &str) -> bool {
    KUBELET_CONDITIONS.contains(&kind)
}

/// A condition without timestamps.
struct ConditionState {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl ConditionState {
    fn holds(kind: &'static str) -> Self {
        Self { kind, holds: true, reason: None, message: None }
    }

    fn fails(kind: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self { kind, holds: false, reason: Some(reason), message }
    }
}

/// Computes the pod's conditions from its phase, container statuses and previous status.
pub fn compute_conditions(
    input: &PodStatusInput<'_>,
    spec: &PodSpec,
    status: &PodStatus,
    old: &PodStatus,
) -> Vec<PodCondition> {
    let old = old.conditions.as_deref().unwrap_or_default();
    let theirs = input.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let sidecars = init.iter().filter(|status| is_sidecar_status(spec, status));
    let lasting: Vec<_> = sidecars.chain(status.container_statuses.iter().flatten()).collect();
    let containers_ready = containers_ready(phase, &lasting);
    let findings = [
        Some(sandbox_ready(input)),
        Some(initialized(phase, spec, status, old)),
        Some(pod_ready(&containers_ready, spec, theirs)),
        Some(containers_ready),
        may_restart_all_containers(spec).then(|| all_containers_restarting(input, phase)),
    ];
    let generation = input.pod.metadata.generation;
    let mut conditions: Vec<_> = findings
        .into_iter()
        .flatten()
        .map(|condition| to_pod_condition(condition, old, generation, Time(input.now)))
        .collect();
    let is_ours = |kind: &str| OWNED_CONDITIONS.contains(&kind) || RESIZE_CONDITIONS.contains(&kind);
    conditions.extend(theirs.iter().filter(|condition| !is_ours(&condition.type_)).cloned());
    if let Some(failure) = input.failure.filter(|failure| failure.reason == EVICTED) {
        conditions.retain(|condition| condition.type_ != "DisruptionTarget");
        let target = ConditionState {
            reason: Some("TerminationByKubelet"),
            message: Some(failure.message.clone()),
            ..ConditionState::holds("DisruptionTarget")
        };
        conditions.push(to_pod_condition(target, old, generation, Time(input.now)));
    }
    conditions.extend(
        resize_conditions(input).map(|condition| to_pod_condition(condition, old, generation, Time(input.now))),
    );
    if !conditions.iter().any(|condition| condition.type_ == "PodScheduled") {
        conditions.push(to_pod_condition(ConditionState::holds("PodScheduled"), old, generation, Time(input.now)));
    }
    conditions
}

/// Converts to a `PodCondition`; the transition time changes only with the status.
fn to_pod_condition(state: ConditionState, old: &[PodCondition], generation: Option<i64>, now: Time) -> PodCondition {
    let status = if state.holds { "True" } else { "False" };
    let same = old.iter().find(|condition| condition.type_ == state.kind && condition.status == status);
    PodCondition {
        type_: state.kind.into(),
        status: status.into(),
        reason: state.reason.map(Into::into),
        message: state.message,
        last_transition_time: same.and_then(|condition| condition.last_transition_time.clone()).or(Some(now)),
        last_probe_time: None,
        observed_generation: generation,
    }
}

/// Returns the conditions of a resize that waits or is being applied; both may hold.
fn resize_conditions(input: &PodStatusInput<'_>) -> impl Iterator<Item = ConditionState> {
    let pending = input.pending_resize.map(|pending| ConditionState {
        reason: Some(pending.reason),
        message: Some(pending.message.clone()),
        ..ConditionState::holds(RESIZE_CONDITIONS[0])
    });
    let in_progress = input.resize_in_progress.map(|error| ConditionState {
        reason: error.map(|_| "Error"),
        message: error.map(Into::into),
        ..ConditionState::holds(RESIZE_CONDITIONS[1])
    });
    pending.into_iter().chain(in_progress)
}

fn sandbox_ready(input: &PodStatusInput<'_>) -> ConditionState {
    let host_network = input.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let holds =
        input.runtime_status.ready_sandbox().is_some() && (host_network || !input.runtime_status.pod_ips().is_empty());
    ConditionState { kind: OWNED_CONDITIONS[0], holds, reason: None, message: None }
}

/// Says whether all containers are being restarted in place; the runtime still has one of them.
fn all_containers_restarting(input: &PodStatusInput<'_>, phase: &str) -> ConditionState {
    let stopped = |reason| ConditionState { kind: OWNED_CONDITIONS[4], holds: false, reason, message: None };
    match phase {
        "Succeeded" => stopped(Some("PodCompleted")),
        "Failed" => stopped(Some("PodFailed")),
        _ if input.restarting && !input.runtime_status.containers.is_empty() => ConditionState {
            reason: Some("RestartAllContainersStarted"),
            message: Some("container exited with restart policy rule".into()),
            ..ConditionState::holds(OWNED_CONDITIONS[4])
        },
        _ => stopped(None),
    }
}

fn initialized(phase: &str, spec: &PodSpec, status: &PodStatus, old: &[PodCondition]) -> ConditionState {
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let incomplete = init.iter().filter(|status| !is_init_passed(spec, status));
    let incomplete: Vec<_> = incomplete.map(|status| status.name.as_str()).collect();
    if phase == "Succeeded" {
        return ConditionState { reason: Some("PodCompleted"), ..ConditionState::holds("Initialized") };
    }
    // A container that started proves that initialization completed.
    let ran = status.container_statuses.iter().flatten().any(|status| status.started == Some(true));
    // What was initialized stays so, also while all containers are restarted.
    let before = old.iter().any(|condition| condition.type_ == "Initialized" && condition.status == "True");
    if incomplete.is_empty() || ran || before {
        return ConditionState::holds("Initialized");
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    ConditionState::fails("Initialized", "ContainersNotInitialized", Some(message))
}

fn containers_ready(phase: &str, containers: &[&ContainerStatus]) -> ConditionState {
    match phase {
        "Succeeded" => return ConditionState::fails("ContainersReady", "PodCompleted", None),
        "Failed" => return ConditionState::fails("ContainersReady", "PodFailed", None),
        _ => {}
    }
    let unready: Vec<_> = containers.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    if unready.is_empty() {
        return ConditionState::holds("ContainersReady");
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    ConditionState::fails("ContainersReady", "ContainersNotReady", Some(message))
}

/// Computes Ready from ContainersReady and the readiness gates.
fn pod_ready(containers: &ConditionState, spec: &PodSpec, theirs: &[PodCondition]) -> ConditionState {
    if !containers.holds {
        return ConditionState { kind: "Ready", message: containers.message.clone(), ..*containers };
    }
    let closed = |gate: &str| match theirs.iter().find(|condition| condition.type_ == gate) {
        None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
        Some(condition) if condition.status == "True" => None,
        Some(condition) => {
            Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {}", condition.status))
        }
    };
    let gates = spec.readiness_gates.iter().flatten();
    let closed: Vec<_> = gates.filter_map(|gate| closed(&gate.condition_type)).collect();
    if closed.is_empty() {
        return ConditionState::holds("Ready");
    }
    ConditionState::fails("Ready", "ReadinessGatesNotReady", Some(closed.join(", ")))
}
