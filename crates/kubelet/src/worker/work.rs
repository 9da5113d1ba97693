//! The long work of a pod's worker: it runs beside the worker, and the worker takes note when it ends.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Container, Pod},
    jiff::Timestamp,
};
use tokio::time::Instant;

use super::{MAX_SANDBOX_RETRY, RESYNC, RUNTIME_RETRY, Stage, Worker};
use crate::{
    agent,
    containers::Launch,
    hooks,
    plan::{SANDBOX, Step},
    sandbox,
    status::Waiting,
    terminate,
    truth::Truth,
};

/// Work that ended.
pub(super) struct Ended {
    key: String,
    outcome: Outcome,
}

pub(super) enum Outcome {
    Fine,
    /// A container does not run.
    Waiting(Waiting),
    /// The sandbox could not be made.
    NoSandbox(sandbox::Error),
    /// Everything was stopped.
    Stopped,
    /// The runtime could not stop everything.
    NotStopped(runtime::cri::Error),
}

impl Worker {
    /// Starts a step beside this task.
    pub(super) fn begin(&mut self, pod: &Arc<Pod>, truth: &Truth, step: Step) {
        match step {
            Step::Sandbox { attempt } => self.begin_sandbox(pod, truth, attempt),
            Step::Start { name, attempt, replaces } => self.begin_container(pod, truth, name, attempt, replaces),
            Step::Kill { name, id } => {
                let message = format!("Container {name} definition changed, will be restarted");
                self.kill(pod, name, id, message);
            }
        }
    }

    fn begin_sandbox(&mut self, pod: &Arc<Pod>, truth: &Truth, attempt: u32) {
        let (agent, pod, tokens) = (self.agent.clone(), pod.clone(), self.tokens.clone());
        let old: Vec<_> = truth.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
        if !old.is_empty() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            agent.recorder.normal(agent::reference(&pod), "SandboxChanged", message);
        }
        self.spawn(SANDBOX.into(), async move {
            for id in old {
                // What is left of a dead sandbox must not keep its address; a failure shows in the next one.
                let _ = agent.cri.stop_sandbox(&id).await;
            }
            match sandbox::create(&agent, &pod, &tokens, attempt).await {
                Ok(_) => Outcome::Fine,
                Err(error) => Outcome::NoSandbox(error),
            }
        });
    }

    fn begin_container(&mut self, pod: &Arc<Pod>, truth: &Truth, name: String, attempt: u32, replaces: Option<String>) {
        let (agent, pod, backoffs, ips) = (self.agent.clone(), pod.clone(), self.backoffs.clone(), truth.ips());
        let Some(container) = container(&pod, &name).cloned() else { return };
        let Some(sandbox) = truth.sandbox().cloned() else { return };
        self.spawn(name, async move {
            let (agent, pod, container) = (&*agent, &*pod, &container);
            if let Some(id) = replaces {
                // Making the new one fails by itself if the old one is in the way.
                let _ = agent.cri.remove_container(&id).await;
            }
            let (ips, backoffs) = (&ips, &backoffs);
            let launch = Launch { agent, pod, container, attempt, sandbox: &sandbox, ips, backoffs };
            match launch.run().await {
                Ok(id) => {
                    let failed = hooks::post_start(agent, pod, container, &id, ips).await;
                    failed.map_or(Outcome::Fine, Outcome::Waiting)
                }
                Err(waiting) => Outcome::Waiting(waiting),
            }
        });
    }

    /// Ends one container, which the next step starts again.
    pub(super) fn kill(&mut self, pod: &Arc<Pod>, name: String, id: String, message: String) {
        let (agent, pod) = (self.agent.clone(), pod.clone());
        let Some(container) = container(&pod, &name).cloned() else { return };
        self.spawn(name, async move {
            agent.recorder.normal(agent::container_reference(&pod, &container), "Killing", message);
            let grace = terminate::grace(&pod);
            match terminate::stop_container(&agent, &pod, &container, &id, grace).await {
                Ok(()) => Outcome::Fine,
                Err(error) => Outcome::Waiting(Waiting { reason: "KillContainerError", message: error.message() }),
            }
        });
    }

    pub(super) fn kill_unhealthy(&mut self, pod: &Arc<Pod>, truth: &Truth) {
        for (name, id, probe) in self.probes.unhealthy(truth) {
            if !self.busy.contains(&name) {
                let message = format!("Container {name} failed {probe} probe, will be restarted");
                self.kill(pod, name, id, message);
            }
        }
    }

    pub(super) fn spawn(&mut self, key: String, work: impl Future<Output = Outcome> + Send + 'static) {
        self.busy.insert(key.clone());
        self.work.spawn(async move { Ended { key, outcome: work.await } });
    }

    /// Takes note of work that ended.
    pub(super) fn absorb(&mut self, pod: &Pod, ended: Result<Ended, tokio::task::JoinError>) {
        let Ended { key, outcome } = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_cancelled() => return,
            Err(error) => {
                // Work that panicked leaves its key behind; nothing of the pod would move any more.
                tracing::error!(pod = agent::full_name(pod), %error, "work on a pod broke off");
                return self.busy.clear();
            }
        };
        self.busy.remove(&key);
        match outcome {
            Outcome::Fine => {
                self.waiting.remove(&key);
                self.sandbox_failures = 0;
            }
            Outcome::Waiting(waiting) => {
                self.held.insert(key.clone(), Instant::now() + self.pause(pod, &key, &waiting));
                self.waiting.insert(key, waiting);
            }
            Outcome::NoSandbox(error) => {
                self.agent.recorder.warning(agent::reference(pod), error.reason(), error.to_string());
                let pause = Duration::from_millis(500) * 2u32.pow(self.sandbox_failures.min(6));
                self.sandbox_failures += 1;
                self.held.insert(key, Instant::now() + pause.min(MAX_SANDBOX_RETRY));
            }
            Outcome::Stopped => self.stage = Stage::Stopped,
            Outcome::NotStopped(error) => {
                tracing::warn!(pod = agent::full_name(pod), %error, "a pod cannot be stopped");
                self.told_grace = None;
                self.held.insert(key, Instant::now() + RUNTIME_RETRY);
            }
        }
    }

    /// How long a container that could not be started waits.
    fn pause(&self, pod: &Pod, name: &str, waiting: &Waiting) -> Duration {
        let image = container(pod, name).and_then(|container| container.image.clone()).unwrap_or_default();
        let key = format!("pull {image}");
        let now = Timestamp::now();
        let left = self.backoffs.updated(&key).and_then(|failed| self.backoffs.waiting(&key, failed, now));
        match (waiting.reason, left) {
            ("ImagePullBackOff", Some((_, left))) => left,
            ("RunContainerError", _) => Duration::ZERO,
            ("ErrImagePull", _) => Duration::from_secs(2),
            _ => Duration::from_secs(10),
        }
    }

    /// Removes dead containers that nobody will ask about.
    pub(super) fn collect_garbage(&mut self, truth: &Truth) {
        for id in truth.outdated() {
            let agent = self.agent.clone();
            tokio::spawn(async move {
                if let Err(error) = agent.cri.remove_container(&id).await {
                    tracing::debug!(%error, "an old container cannot be removed");
                }
            });
        }
    }

    /// Objects that volumes show may have changed since.
    pub(super) fn refresh_volumes(&mut self, pod: &Arc<Pod>, truth: &Truth) {
        let due = self.refreshed.elapsed() >= RESYNC;
        if !due || truth.sandbox().is_none() || self.busy.contains(SANDBOX) {
            return;
        }
        self.refreshed = Instant::now();
        let (agent, pod, tokens) = (self.agent.clone(), pod.clone(), self.tokens.clone());
        self.spawn(SANDBOX.into(), async move {
            if let Err(error) = sandbox::prepare_volumes(&agent, &pod, &tokens).await {
                agent.recorder.warning(agent::reference(&pod), error.reason(), error.to_string());
            }
            Outcome::Fine
        });
    }
}

/// The container of that name in the spec.
pub(super) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.init_containers.iter().flatten().chain(&spec.containers).find(|container| container.name == name)
}
