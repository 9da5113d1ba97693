//! Plays the scheduler and the kubelets, and observes what must never be.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Dice, workloads::NAMESPACE};

/// The annotation of pod templates that says how many pods of a Job fail.
pub const FAILURES: &str = "chaos/failures";

/// The player.
pub struct FakeKubelet {
    observed: Arc<Mutex<Observed>>,
    follower: JoinHandle<()>,
}

/// Observations of all pods.
#[derive(Default)]
struct Observed {
    started: HashSet<String>,
    ended: HashSet<String>,
    /// Failures that were played, by the uid of the Job.
    failures: HashMap<String, u64>,
    /// Final phases of the pods of Jobs, by the uids of Job and pod.
    outcomes: HashMap<String, HashMap<String, bool>>,
    /// The uids of the pods that exist, by the uid of the StatefulSet and the ordinal.
    ordinals: HashMap<(String, String), HashSet<String>>,
    violations: Vec<String>,
}

impl FakeKubelet {
    /// Begins to play.
    pub async fn start(client: Client, dice: Dice) -> Self {
        let observed = Arc::new(Mutex::new(Observed::default()));
        let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
        let state = observed.clone();
        let follower = tokio::spawn(async move {
            let mut events = pin!(watcher(pods.clone(), watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                        if let Some(play) = lock(&state).next_play(&pod) {
                            tokio::spawn(play_pod(pods.clone(), pod, play, dice.clone()));
                        }
                    }
                    Ok(watcher::Event::Delete(pod)) => lock(&state).forget_pod(&pod),
                    Ok(_) => {}
                    Err(error) => println!("the watch of pods failed: {error}"),
                }
            }
        });
        Self { observed, follower }
    }

    /// Fails if there was something that must never be.
    #[track_caller]
    pub fn expect_invariants(&self) {
        assert!(!self.follower.is_finished(), "the fake kubelet ended");
        let observed = lock(&self.observed);
        assert!(observed.violations.is_empty(), "{}", observed.violations.join("\n"));
    }

    /// The numbers of pods of a Job that succeeded and failed.
    pub fn job_outcomes(&self, job: &str) -> (usize, usize) {
        let observed = lock(&self.observed);
        let outcomes = observed.outcomes.get(job);
        let count = |wanted| outcomes.into_iter().flatten().filter(|(_, succeeded)| **succeeded == wanted).count();
        (count(true), count(false))
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.follower.abort();
    }
}

fn lock(observed: &Mutex<Observed>) -> MutexGuard<'_, Observed> {
    observed.lock().expect("nobody panicked")
}

/// The next step for a pod.
enum PodPlay {
    Run,
    Finish { succeeds: bool },
    End,
}

impl Observed {
    fn next_play(&mut self, pod: &Pod) -> Option<PodPlay> {
        self.observe_ordinal(pod);
        self.observe_outcome(pod);
        let uid = pod.uid().expect("a stored pod");
        if pod.metadata.deletion_timestamp.is_some() {
            return self.ended.insert(uid).then_some(PodPlay::End);
        }
        if !self.started.insert(uid) {
            return None;
        }
        let Some(job) = owner(pod, "Job") else { return Some(PodPlay::Run) };
        let failures = pod.annotations().get(FAILURES).and_then(|text| text.parse().ok()).unwrap_or(0);
        let played = self.failures.entry(job).or_default();
        let succeeds = *played >= failures;
        *played += u64::from(!succeeds);
        Some(PodPlay::Finish { succeeds })
    }

    /// Two pods of one ordinal must not exist at a time.
    fn observe_ordinal(&mut self, pod: &Pod) {
        let Some(key) = ordinal(pod) else { return };
        let pods = self.ordinals.entry(key).or_default();
        if pods.insert(pod.uid().expect("a stored pod")) && pods.len() > 1 {
            self.violations.push(format!("two pods of the ordinal of {}: {pods:?}", pod.name_any()));
        }
    }

    fn observe_outcome(&mut self, pod: &Pod) {
        let (Some(job), Some(uid)) = (owner(pod, "Job"), pod.uid()) else { return };
        let succeeded = match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Succeeded") => true,
            Some("Failed") => false,
            _ => return,
        };
        if self.outcomes.entry(job).or_default().insert(uid, succeeded) == Some(!succeeded) {
            self.violations.push(format!("pod {} changed its final phase", pod.name_any()));
        }
    }

    fn forget_pod(&mut self, pod: &Pod) {
        self.observe_outcome(pod);
        if let (Some(pods), Some(uid)) = (ordinal(pod).and_then(|key| self.ordinals.get_mut(&key)), pod.uid()) {
            pods.remove(&uid);
        }
    }
}

/// The uid of the pod's controller of a kind.
fn owner(pod: &Pod, kind: &str) -> Option<String> {
    pod.owner_references().iter().find(|owner| owner.kind == kind).map(|owner| owner.uid.clone())
}

fn ordinal(pod: &Pod) -> Option<(String, String)> {
    Some((owner(pod, "StatefulSet")?, pod.labels().get("apps.kubernetes.io/pod-index")?.clone()))
}

/// Plays a pod. What fails because the pod is gone or changed meanwhile is fine: no test waits for it then.
async fn play_pod(pods: Api<Pod>, pod: Pod, play: PodPlay, dice: Dice) {
    let name = pod.name_any();
    dice.pause(Duration::from_millis(300)).await;
    let status = |status: Value| {
        let (pods, name) = (pods.clone(), name.clone());
        async move { pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await }
    };
    match play {
        PodPlay::Run => {
            let _ = status(json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}))
            .await;
        }
        PodPlay::Finish { succeeds } => {
            let target = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "node"}});
            let _: Result<Value, _> = pods.create_subresource("binding", &name, &PostParams::default(), &target).await;
            let _ = status(json!({"phase": "Running"})).await;
            dice.pause(Duration::from_millis(300)).await;
            finish_pod(&pods, &name, if succeeds { "Succeeded" } else { "Failed" }).await;
        }
        PodPlay::End => {
            // A container that is told to end fails.
            finish_pod(&pods, &name, "Failed").await;
            let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            let _ = pods.delete(&name, &now).await;
        }
    }
}

/// Gives a pod its final phase, unless it has one.
async fn finish_pod(pods: &Api<Pod>, name: &str, phase: &str) {
    while let Ok(Some(pod)) = pods.get_opt(name).await {
        let current = pod.status.and_then(|status| status.phase);
        if matches!(current.as_deref(), Some("Succeeded" | "Failed")) {
            return;
        }
        let version = json!({"resourceVersion": pod.metadata.resource_version, "uid": pod.metadata.uid});
        let patch = Patch::Merge(json!({"metadata": version, "status": {"phase": phase}}));
        if pods.patch_status(name, &PatchParams::default(), &patch).await.is_ok() {
            return;
        }
    }
}
