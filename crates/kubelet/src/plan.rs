//! Decides what to do for a pod, from its spec and the runtime's truth. Pure: the worker does it.

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
    backoff::Backoffs,
    status::Health,
    truth::{Seen, Truth, labels},
};

/// The key under which work on the sandbox is known to be under way; no container can have this name.
pub const SANDBOX: &str = "/sandbox";

/// One thing to do. Different steps may be done at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make the pod's volumes and its sandbox, the `attempt`-th one.
    Sandbox {
        /// Its number.
        attempt: u32,
    },
    /// Make and start a container, restarted `attempt` times before.
    Start {
        /// Its name in the spec.
        name: String,
        /// How often it was restarted.
        attempt: u32,
        /// A container that was made and never started, to be removed first.
        replaces: Option<String>,
    },
    /// End a container whose definition changed.
    Kill {
        /// Its name in the spec.
        name: String,
        /// Its id.
        id: String,
    },
}

/// What is to be done now.
#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    /// Things to do.
    pub steps: Vec<Step>,
    /// Containers that wait for their restart: name and the delay that is enforced.
    pub crashing: Vec<(String, Duration)>,
    /// When to look again.
    pub again: Option<Duration>,
    /// Nothing will run any more.
    pub finished: bool,
}

/// What the planner looks at.
pub struct Facts<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// What the runtime says.
    pub truth: &'a Truth,
    /// How long crashing containers wait.
    pub backoffs: &'a Backoffs,
    /// What is being worked on.
    pub busy: &'a HashSet<String>,
    /// What probes say of running containers, by id.
    pub health: &'a HashMap<String, Health>,
    /// Now.
    pub now: Timestamp,
}

/// Makes the plan.
pub fn plan(facts: &Facts<'_>) -> Plan {
    let mut plan = Plan::default();
    let Some(spec) = &facts.pod.spec else { return plan };
    if finished(spec, facts.truth) {
        return Plan { finished: true, ..plan };
    }
    let Some(sandbox) = facts.truth.sandbox() else {
        if !facts.busy.contains(SANDBOX) {
            plan.steps.push(Step::Sandbox { attempt: facts.truth.next_sandbox() });
        }
        return plan;
    };
    if initialize(&mut plan, facts, spec, &sandbox.id) {
        run(&mut plan, facts, spec);
    }
    plan
}

/// Runs init containers one after the other; true when the pod's own containers may start.
fn initialize(plan: &mut Plan, facts: &Facts<'_>, spec: &PodSpec, sandbox: &str) -> bool {
    let in_sandbox =
        |container: &Container| facts.truth.latest(&container.name).is_some_and(|seen| seen.sandbox == sandbox);
    let begun = spec.containers.iter().any(in_sandbox);
    for container in spec.init_containers.iter().flatten() {
        let seen = facts.truth.latest(&container.name);
        let passed = match seen {
            Some(seen) if is_sidecar(container) => seen.running() && facts.started(seen),
            Some(seen) => seen.exited() && seen.status.exit_code == 0 && seen.sandbox == sandbox,
            None => false,
        };
        let running = seen.is_some_and(Seen::running);
        if !passed && !running && (is_sidecar(container) || !begun) {
            start(plan, facts, container, seen);
        }
        if !passed && !begun {
            return false;
        }
    }
    true
}

/// Starts the pod's own containers, all at once.
fn run(plan: &mut Plan, facts: &Facts<'_>, spec: &PodSpec) {
    for container in &spec.containers {
        let seen = facts.truth.latest(&container.name);
        match seen {
            Some(seen) if seen.running() => changed(plan, facts, container, seen),
            Some(seen) if seen.exited() && !restarts(spec, seen) => {}
            seen => start(plan, facts, container, seen),
        }
    }
}

impl Facts<'_> {
    /// Whether a running container's startup probe has succeeded, if it has one.
    fn started(&self, seen: &Seen) -> bool {
        self.health.get(&seen.status.id).is_none_or(|health| health.started)
    }
}

/// An init container that runs beside the pod's own containers, started before them and ended after them.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// The restart policy, `Always` unless it says otherwise.
pub fn policy(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

/// Whether a container that ended is to be started again.
pub fn restarts(spec: &PodSpec, seen: &Seen) -> bool {
    match policy(spec) {
        "Never" => false,
        "OnFailure" => seen.status.exit_code != 0,
        _ => true,
    }
}

/// Whether nothing of the pod will run any more.
fn finished(spec: &PodSpec, truth: &Truth) -> bool {
    let over = |container: &Container| {
        truth.latest(&container.name).is_some_and(|seen| seen.exited() && !restarts(spec, seen))
    };
    let failed = |container: &Container| {
        truth.latest(&container.name).is_some_and(|seen| seen.exited() && seen.status.exit_code != 0)
    };
    let mut init = spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container));
    let init_failed = policy(spec) == "Never" && init.any(failed);
    init_failed || (!spec.containers.is_empty() && spec.containers.iter().all(over))
}

fn changed(plan: &mut Plan, facts: &Facts<'_>, container: &Container, seen: &Seen) {
    let made_of = seen.status.annotations.get(labels::HASH);
    if made_of.is_some_and(|hash| *hash != hash_of(container)) && !facts.busy.contains(&container.name) {
        plan.steps.push(Step::Kill { name: container.name.clone(), id: seen.status.id.clone() });
    }
}

/// Starts a container now, or says when.
fn start(plan: &mut Plan, facts: &Facts<'_>, container: &Container, seen: Option<&Seen>) {
    if facts.busy.contains(&container.name) {
        return;
    }
    let name = container.name.clone();
    let Some(seen) = seen else {
        return plan.steps.push(Step::Start { name, attempt: 0, replaces: None });
    };
    if seen.state() == ContainerState::ContainerCreated {
        let replaces = Some(seen.status.id.clone());
        return plan.steps.push(Step::Start { name, attempt: seen.attempt(), replaces });
    }
    let failed = Timestamp::from_nanosecond(seen.status.finished_at.into()).unwrap_or(facts.now);
    match facts.backoffs.waiting(&backoff_key(container), failed, facts.now) {
        Some((delay, left)) => {
            plan.crashing.push((name, delay));
            plan.again = Some(plan.again.map_or(left, |again| again.min(left)));
        }
        None => {
            facts.backoffs.next(&backoff_key(container), failed, facts.now);
            plan.steps.push(Step::Start { name, attempt: seen.attempt() + 1, replaces: None });
        }
    }
}

/// A changed container starts over.
fn backoff_key(container: &Container) -> String {
    format!("{}_{}", container.name, hash_of(container))
}

/// Identifies what a container was made of: the fields whose change restarts it (FNV-1a).
pub fn hash_of(container: &Container) -> String {
    let text = format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default());
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

#[cfg(test)]
mod tests;
