//! One task per pod: it makes the pod what its spec says, reports what became of it, and takes it down again.
//!
//! The task never waits for the runtime with its back turned: long work runs beside it, and every change of the pod, of the
//! runtime or of the work makes it look again. It keeps nothing that the runtime's truth cannot restore.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    agent::{self, Agent},
    backoff::{Backoffs, go_seconds},
    containers::Launch,
    hooks, messages,
    plan::{self, Facts, SANDBOX, Step},
    probes::Probes,
    sandbox,
    status::{self, Verdict, View, Waiting},
    status_writer::StatusWriter,
    terminate, unsupported,
    truth::Truth,
    volumes::Tokens,
};

/// How often a pod is looked at when nothing happens: volumes show objects that may have changed.
const RESYNC: Duration = Duration::from_secs(45);
/// How soon the runtime is asked again after it failed to answer.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// The longest pause between two tries to make a sandbox.
const MAX_SANDBOX_RETRY: Duration = Duration::from_secs(10);

/// What the API server says of a pod.
#[derive(Clone)]
pub enum Desired {
    /// It is to be as this says.
    Pod(Arc<Pod>),
    /// It is gone; this was it.
    Gone(Arc<Pod>),
}

impl Desired {
    fn pod(&self) -> &Arc<Pod> {
        match self {
            Desired::Pod(pod) | Desired::Gone(pod) => pod,
        }
    }
}

/// Where a pod is in its life. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Being started or running.
    Active,
    /// Being stopped: nothing is started any more.
    Stopping,
    /// Nothing runs; the final status has to be written and the pod's things removed.
    Stopped,
    /// All is written and removed; waiting for the API server to forget the pod.
    Done,
}

/// Work that ended.
struct Ended {
    key: String,
    outcome: Outcome,
}

enum Outcome {
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

/// The task of one pod.
pub struct Worker {
    agent: Arc<Agent>,
    desired: watch::Receiver<Desired>,
    wake: Arc<Notify>,
    stage: Stage,
    work: JoinSet<Ended>,
    /// The keys of `work`, and of what failed and is not to be tried again yet.
    busy: HashSet<String>,
    /// When a key that failed may be tried again.
    held: HashMap<String, Instant>,
    waiting: HashMap<String, Waiting>,
    messages: HashMap<String, String>,
    backoffs: Arc<Backoffs>,
    tokens: Arc<Tokens>,
    probes: Probes,
    writer: StatusWriter,
    verdict: Option<Verdict>,
    sandbox_failures: u32,
    /// The shortest grace that containers were told.
    told_grace: Option<Duration>,
    refreshed: Instant,
}

impl Worker {
    /// A worker for the pod in `desired`; `wake` makes it look at the runtime.
    pub fn new(agent: Arc<Agent>, desired: watch::Receiver<Desired>, wake: Arc<Notify>) -> Self {
        let pod = desired.borrow().pod().clone();
        Self {
            writer: StatusWriter::new(agent.client.clone(), &pod),
            probes: Probes::new(wake.clone()),
            agent,
            desired,
            wake,
            stage: Stage::Active,
            work: JoinSet::new(),
            busy: HashSet::new(),
            held: HashMap::new(),
            waiting: HashMap::new(),
            messages: HashMap::new(),
            backoffs: Arc::default(),
            tokens: Arc::default(),
            verdict: None,
            sandbox_failures: 0,
            told_grace: None,
            refreshed: Instant::now(),
        }
    }

    /// Works until the pod is gone and nothing of it is left.
    pub async fn run(mut self) {
        loop {
            let desired = self.desired.borrow_and_update().clone();
            let next = match self.step(&desired).await {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(pod = agent::full_name(desired.pod()), %error, "the runtime does not answer");
                    RUNTIME_RETRY
                }
            };
            let held = self.held.values().min().copied().unwrap_or_else(|| Instant::now() + next);
            tokio::select! {
                changed = self.desired.changed() => if changed.is_err() { return },
                () = self.wake.notified() => {}
                Some(ended) = self.work.join_next() => self.absorb(desired.pod(), ended),
                () = tokio::time::sleep_until(held.min(Instant::now() + next)) => {}
            }
        }
    }

    /// Does what can be done now; returns when to look again, or nothing when all is over.
    async fn step(&mut self, desired: &Desired) -> Result<Option<Duration>, runtime::cri::Error> {
        let pod = desired.pod().clone();
        let leaving = matches!(desired, Desired::Gone(_)) || pod.metadata.deletion_timestamp.is_some();
        if self.stage == Stage::Active && leaving {
            self.stage = Stage::Stopping;
        }
        let now = Instant::now();
        self.held.retain(|_, until| *until > now);
        let next = match self.stage {
            Stage::Active => self.active(&pod).await?,
            Stage::Stopping => self.stopping(&pod, leaving).await?,
            Stage::Stopped | Stage::Done => Duration::ZERO,
        };
        match self.stage {
            Stage::Active | Stage::Stopping => Ok(Some(next)),
            Stage::Stopped => {
                self.finish(&pod).await?;
                self.stage = Stage::Done;
                self.leave(desired, leaving).await
            }
            Stage::Done => self.leave(desired, leaving).await,
        }
    }

    /// Starts what is missing and reports.
    async fn active(&mut self, pod: &Arc<Pod>) -> Result<Duration, runtime::cri::Error> {
        let truth = Truth::read(&self.agent.cri, agent::uid(pod)).await?;
        if has_ended(pod) {
            self.stage = Stage::Stopping;
            return self.stopping(pod, false).await;
        }
        if let Some(verdict) = self.judge(pod) {
            self.verdict = Some(verdict);
            self.stage = Stage::Stopping;
            return self.stopping(pod, false).await;
        }
        let mut busy = self.busy.clone();
        busy.extend(self.held.keys().cloned());
        let facts = Facts { pod, truth: &truth, backoffs: &self.backoffs, busy: &busy, now: Timestamp::now() };
        let plan = plan::plan(&facts);
        for (name, delay) in &plan.crashing {
            self.crashing(pod, name, *delay);
        }
        for step in plan.steps {
            self.begin(pod, &truth, step);
        }
        self.probes.follow(&self.agent, pod, &truth);
        self.kill_unhealthy(pod, &truth);
        self.report(pod, &truth, false);
        self.collect_garbage(&truth);
        self.refresh_volumes(pod, &truth);
        if plan.finished {
            self.stage = Stage::Stopping;
            return self.stopping(pod, false).await;
        }
        let deadline = time_left(pod).unwrap_or(RESYNC);
        Ok(plan.again.unwrap_or(RESYNC).min(deadline).min(RESYNC))
    }

    /// Whether the pod has failed as a whole.
    fn judge(&self, pod: &Pod) -> Option<Verdict> {
        if let Some(message) = unsupported::find(pod) {
            self.agent.recorder.warning(agent::reference(pod), "UnsupportedPodFeature", message.clone());
            return Some(Verdict { reason: "UnsupportedPodFeature", message });
        }
        if time_left(pod) == Some(Duration::ZERO) {
            let message = "Pod was active on the node longer than the specified deadline".to_string();
            self.agent.recorder.normal(agent::reference(pod), "DeadlineExceeded", message.clone());
            return Some(Verdict { reason: "DeadlineExceeded", message });
        }
        None
    }

    fn crashing(&mut self, pod: &Pod, name: &str, delay: Duration) {
        let delay = go_seconds(delay);
        let message = format!("back-off {delay} restarting failed container={name} pod={}", agent::full_name(pod));
        let waiting = Waiting { reason: "CrashLoopBackOff", message };
        if self.waiting.insert(name.into(), waiting.clone()) != Some(waiting)
            && let Some(container) = container(pod, name)
        {
            let about = agent::container_reference(pod, container);
            let message = format!("Back-off restarting failed container {name} in pod {}", agent::full_name(pod));
            self.agent.recorder.warning(about, "BackOff", message);
        }
    }

    /// Starts a step beside this task.
    fn begin(&mut self, pod: &Arc<Pod>, truth: &Truth, step: Step) {
        let (agent, pod) = (self.agent.clone(), pod.clone());
        match step {
            Step::Sandbox { attempt } => {
                let tokens = self.tokens.clone();
                let old: Vec<_> = truth.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
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
            Step::Start { name, attempt, replaces } => {
                let (Some(container), Some(sandbox)) = (container(&pod, &name).cloned(), truth.sandbox().cloned()) else {
                    return;
                };
                let (ips, backoffs) = (truth.ips(), self.backoffs.clone());
                self.spawn(name, async move {
                    if let Some(id) = replaces {
                        // Making the new one fails by itself if the old one is in the way.
                        let _ = agent.cri.remove_container(&id).await;
                    }
                    let (agent, pod) = (&*agent, &*pod);
                    let launch = Launch {
                        agent,
                        pod,
                        container: &container,
                        attempt,
                        sandbox: &sandbox,
                        ips: &ips,
                        backoffs: &backoffs,
                    };
                    match launch.run().await {
                        Ok(id) => hooks::post_start(agent, pod, &container, &id, &ips)
                            .await
                            .map_or(Outcome::Fine, Outcome::Waiting),
                        Err(waiting) => Outcome::Waiting(waiting),
                    }
                });
            }
            Step::Kill { name, id } => {
                let message = format!("Container {name} definition changed, will be restarted");
                self.kill(&pod, name, id, message);
            }
        }
    }

    /// Ends one container, which the next step starts again.
    fn kill(&mut self, pod: &Arc<Pod>, name: String, id: String, message: String) {
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

    fn kill_unhealthy(&mut self, pod: &Arc<Pod>, truth: &Truth) {
        for (name, id, probe) in self.probes.unhealthy(truth) {
            if !self.busy.contains(&name) {
                let message = format!("Container {name} failed {probe} probe, will be restarted");
                self.kill(pod, name, id, message);
            }
        }
    }

    fn spawn(&mut self, key: String, work: impl Future<Output = Outcome> + Send + 'static) {
        self.busy.insert(key.clone());
        self.work.spawn(async move { Ended { key, outcome: work.await } });
    }

    /// Takes note of work that ended.
    fn absorb(&mut self, pod: &Pod, ended: Result<Ended, tokio::task::JoinError>) {
        let Ended { key, outcome } = match ended {
            Ok(ended) => ended,
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
            _ => Duration::from_secs(5),
        }
    }

    /// Computes the status and has it written.
    fn report(&mut self, pod: &Pod, truth: &Truth, terminal: bool) {
        if has_ended(pod) && truth.containers.is_empty() {
            // It ended under an earlier kubelet; the runtime knows less of it than its status does.
            return;
        }
        for seen in &truth.containers {
            if seen.running() {
                self.waiting.remove(seen.name());
            } else if seen.exited() && !self.messages.contains_key(&seen.status.id) {
                let message = messages::read(&self.agent, pod, seen);
                self.messages.insert(seen.status.id.clone(), message);
            }
        }
        self.messages.retain(|id, _| truth.containers.iter().any(|seen| seen.status.id == *id));
        let view = View {
            pod,
            truth,
            waiting: &self.waiting,
            health: &self.probes.health(),
            messages: &self.messages,
            verdict: self.verdict.as_ref(),
            terminal,
            host_ip: &self.agent.node_ip.to_string(),
            runtime_name: &self.agent.runtime_name,
            now: Timestamp::now(),
        };
        self.writer.set(status::compute(&view));
    }

    /// Removes dead containers that nobody will ask about.
    fn collect_garbage(&mut self, truth: &Truth) {
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
    fn refresh_volumes(&mut self, pod: &Arc<Pod>, truth: &Truth) {
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

    /// Has everything stopped, again if the grace became shorter.
    async fn stopping(&mut self, pod: &Arc<Pod>, leaving: bool) -> Result<Duration, runtime::cri::Error> {
        let truth = Truth::read(&self.agent.cri, agent::uid(pod)).await?;
        self.probes.stop();
        let grace = if leaving { terminate::deletion_grace(pod) } else { terminate::grace(pod) };
        let shorter = self.told_grace.is_none_or(|told| grace < told);
        // What is being started must be there before it can be stopped.
        let starting = self.busy.iter().any(|key| key != terminate::KEY);
        if shorter && !starting && !self.held.contains_key(terminate::KEY) {
            self.told_grace = Some(grace);
            let (agent, pod, truth) = (self.agent.clone(), pod.clone(), truth.clone());
            self.spawn(terminate::KEY.into(), async move {
                match terminate::stop_pod(&agent, &pod, &truth, grace).await {
                    Ok(()) => Outcome::Stopped,
                    Err(error) => Outcome::NotStopped(error),
                }
            });
        }
        self.report(pod, &truth, false);
        Ok(RESYNC)
    }

    /// Writes the final status and removes the pod's volumes and control group.
    async fn finish(&mut self, pod: &Arc<Pod>) -> Result<(), runtime::cri::Error> {
        let truth = Truth::read(&self.agent.cri, agent::uid(pod)).await?;
        self.report(pod, &truth, true);
        let clean = terminate::clean(self.agent.clone(), pod.clone());
        tokio::join!(self.writer.flushed(), clean);
        Ok(())
    }

    /// Lets the API server forget the pod, and forgets it too.
    async fn leave(&mut self, desired: &Desired, leaving: bool) -> Result<Option<Duration>, runtime::cri::Error> {
        match desired {
            Desired::Gone(pod) => {
                terminate::forget(&self.agent, pod).await?;
                Ok(None)
            }
            Desired::Pod(pod) if leaving => {
                terminate::delete(&self.agent, pod).await;
                Ok(Some(RUNTIME_RETRY * 5))
            }
            Desired::Pod(_) => Ok(Some(RESYNC * 20)),
        }
    }
}

/// The container of that name in the spec.
fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a k8s_openapi::api::core::v1::Container> {
    let spec = pod.spec.as_ref()?;
    spec.init_containers.iter().flatten().chain(&spec.containers).find(|container| container.name == name)
}

/// Whether the API server has a final status of the pod: it is never started again.
fn has_ended(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// What is left of the time that the pod may run, if it is limited.
fn time_left(pod: &Pod) -> Option<Duration> {
    let limit = pod.spec.as_ref()?.active_deadline_seconds?;
    let started = pod.status.as_ref()?.start_time.as_ref()?.0;
    let left = limit as f64 - Timestamp::now().duration_since(started).as_secs_f64();
    Some(Duration::from_secs_f64(left.max(0.0)))
}
