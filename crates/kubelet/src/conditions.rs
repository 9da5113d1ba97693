//! The conditions of a pod: what is done of it, in upstream's types, reasons and messages.

use k8s_openapi::{
    api::core::v1::{ContainerStatus, PodCondition, PodSpec, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::status::{View, is_sidecar_status, passed};

/// The conditions that this kubelet owns; all others are kept as they are.
const OWNED: [&str; 4] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"];

/// A condition without its times.
struct Finding {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Finding {
    fn holds(kind: &'static str) -> Self {
        Self { kind, holds: true, reason: None, message: None }
    }

    fn fails(kind: &'static str, reason: &'static str, message: Option<String>) -> Self {
        Self { kind, holds: false, reason: Some(reason), message }
    }
}

/// All conditions of the pod, given its phase, its containers' statuses and the status that it had.
pub fn compute(view: &View<'_>, spec: &PodSpec, status: &PodStatus, old: &PodStatus) -> Vec<PodCondition> {
    let old = old.conditions.as_deref().unwrap_or_default();
    let theirs = view.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    let sidecars = init.iter().filter(|status| is_sidecar_status(spec, status));
    let lasting: Vec<_> = sidecars.chain(status.container_statuses.iter().flatten()).collect();
    let containers_ready = containers_ready(phase, &lasting);
    let findings = [
        sandbox_ready(view),
        initialized(phase, spec, init, status),
        ready(&containers_ready, spec, theirs),
        containers_ready,
    ];
    let generation = view.pod.metadata.generation;
    let mut conditions: Vec<_> =
        findings.into_iter().map(|finding| dated(finding, old, generation, Time(view.now))).collect();
    conditions.extend(theirs.iter().filter(|condition| !OWNED.contains(&condition.type_.as_str())).cloned());
    if !conditions.iter().any(|condition| condition.type_ == "PodScheduled") {
        conditions.push(dated(Finding::holds("PodScheduled"), old, generation, Time(view.now)));
    }
    conditions
}

/// The time of a condition is when its status changed, not when it was looked at.
fn dated(finding: Finding, old: &[PodCondition], generation: Option<i64>, now: Time) -> PodCondition {
    let status = if finding.holds { "True" } else { "False" };
    let same = old.iter().find(|condition| condition.type_ == finding.kind && condition.status == status);
    PodCondition {
        type_: finding.kind.into(),
        status: status.into(),
        reason: finding.reason.map(Into::into),
        message: finding.message,
        last_transition_time: same.and_then(|condition| condition.last_transition_time.clone()).or(Some(now)),
        last_probe_time: None,
        observed_generation: generation,
    }
}

fn sandbox_ready(view: &View<'_>) -> Finding {
    let host_network = view.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
    let holds = view.truth.sandbox().is_some() && (host_network || !view.truth.ips().is_empty());
    Finding { kind: OWNED[0], holds, reason: None, message: None }
}

fn initialized(phase: &str, spec: &PodSpec, init: &[ContainerStatus], status: &PodStatus) -> Finding {
    let incomplete = init.iter().filter(|status| !passed(spec, status));
    let incomplete: Vec<_> = incomplete.map(|status| status.name.as_str()).collect();
    if phase == "Succeeded" {
        return Finding { reason: Some("PodCompleted"), ..Finding::holds("Initialized") };
    }
    // A container that ran proves that initialization was over.
    let ran = status.container_statuses.iter().flatten().any(|status| status.started == Some(true));
    if incomplete.is_empty() || ran {
        return Finding::holds("Initialized");
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Finding::fails("Initialized", "ContainersNotInitialized", Some(message))
}

fn containers_ready(phase: &str, containers: &[&ContainerStatus]) -> Finding {
    match phase {
        "Succeeded" => return Finding::fails("ContainersReady", "PodCompleted", None),
        "Failed" => return Finding::fails("ContainersReady", "PodFailed", None),
        _ => {}
    }
    let unready: Vec<_> = containers.iter().filter(|status| !status.ready).map(|status| status.name.as_str()).collect();
    if unready.is_empty() {
        return Finding::holds("ContainersReady");
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Finding::fails("ContainersReady", "ContainersNotReady", Some(message))
}

/// Ready is what containers say, and every readiness gate.
fn ready(containers: &Finding, spec: &PodSpec, theirs: &[PodCondition]) -> Finding {
    if !containers.holds {
        return Finding { kind: "Ready", message: containers.message.clone(), ..*containers };
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
        return Finding::holds("Ready");
    }
    Finding::fails("Ready", "ReadinessGatesNotReady", Some(closed.join(", ")))
}
