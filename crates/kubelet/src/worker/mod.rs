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
    messages,
    plan::{self, Facts},
    probes::Probes,
    status::{self, Verdict, View, Waiting},
    status_writer::StatusWriter,
    terminate,
    truth::{Seen, Truth},
    unsupported,
    volumes::Tokens,
};

mod work;

use work::{Ended, Outcome, container};

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
            self.stop_working();
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
                if !self.finish(&pod).await? {
                    return Ok(Some(RUNTIME_RETRY));
                }
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
            self.stop_working();
            return self.stopping(pod, false).await;
        }
        if let Some(verdict) = self.judge(pod, &truth) {
            self.verdict = Some(verdict);
            self.stop_working();
            return self.stopping(pod, false).await;
        }
        let mut busy = self.busy.clone();
        busy.extend(self.held.keys().cloned());
        let health = self.probes.health();
        let facts =
            Facts { pod, truth: &truth, backoffs: &self.backoffs, busy: &busy, health: &health, now: Timestamp::now() };
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
            self.stop_working();
            return self.stopping(pod, false).await;
        }
        let deadline = time_left(pod).unwrap_or(RESYNC);
        Ok(plan.again.unwrap_or(RESYNC).min(deadline).min(RESYNC))
    }

    /// Breaks off what is being started, such as a pull that may take hours: from now on things only end.
    fn stop_working(&mut self) {
        self.work.abort_all();
        self.busy.clear();
        self.held.clear();
        self.stage = Stage::Stopping;
    }

    /// Whether the pod has failed as a whole.
    fn judge(&self, pod: &Pod, truth: &Truth) -> Option<Verdict> {
        // What runs already was accepted, by this kubelet or by an earlier one.
        let refusal = truth.sandboxes.is_empty().then(|| unsupported::find(pod)).flatten();
        if let Some(message) = refusal {
            self.agent.recorder.warning(agent::reference(pod), "UnsupportedPodFeature", message.clone());
            let message = format!("Pod was rejected: {message}");
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
        let last = self.writer.last();
        let now = Timestamp::now();
        let view = View {
            pod,
            last: last.as_deref(),
            truth,
            waiting: &self.waiting,
            health: &self.probes.health(),
            messages: &self.messages,
            verdict: self.verdict.as_ref(),
            terminal,
            host_ip: &self.agent.node_ip.to_string(),
            runtime_name: &self.agent.runtime_name,
            // The API has whole seconds; anything finer would look like a change.
            now: Timestamp::from_second(now.as_second()).unwrap_or(now),
        };
        self.writer.set(status::compute(&view));
    }

    /// Has everything stopped, again if the grace became shorter.
    async fn stopping(&mut self, pod: &Arc<Pod>, leaving: bool) -> Result<Duration, runtime::cri::Error> {
        let truth = Truth::read(&self.agent.cri, agent::uid(pod)).await?;
        self.probes.stop();
        let grace = if leaving { terminate::deletion_grace(pod) } else { terminate::grace(pod) };
        let shorter = self.told_grace.is_none_or(|told| grace < told);
        if shorter && !self.held.contains_key(terminate::KEY) {
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

    /// Writes the final status and removes the pod's volumes and control group; false if something runs after all.
    async fn finish(&mut self, pod: &Arc<Pod>) -> Result<bool, runtime::cri::Error> {
        let truth = Truth::read(&self.agent.cri, agent::uid(pod)).await?;
        if truth.sandbox().is_some() || truth.containers.iter().any(Seen::running) {
            // The runtime finished what had been broken off.
            self.told_grace = None;
            self.stage = Stage::Stopping;
            return Ok(false);
        }
        self.report(pod, &truth, true);
        let clean = terminate::clean(self.agent.clone(), pod.clone());
        tokio::join!(self.writer.flushed(), clean);
        Ok(true)
    }

    /// Lets the API server forget the pod, and forgets it too.
    async fn leave(&mut self, desired: &Desired, leaving: bool) -> Result<Option<Duration>, runtime::cri::Error> {
        match desired {
            Desired::Gone(pod) => {
                terminate::forget(&self.agent, pod).await?;
                Ok(None)
            }
            Desired::Pod(pod) if leaving => {
                let told = terminate::delete(&self.agent, pod).await;
                Ok(Some(if told { RESYNC } else { RUNTIME_RETRY }))
            }
            Desired::Pod(_) => Ok(Some(RESYNC * 20)),
        }
    }
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
