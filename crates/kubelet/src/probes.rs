//! Probes: one task per probe of a running container, which tells the pod's worker when its verdict changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    agent::{Agent, container_reference},
    handlers::Target,
    plan::is_sidecar,
    status::Health,
    truth::Truth,
};

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Startup, Kind::Readiness, Kind::Liveness];

    fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Kind::Startup => "startup",
            Kind::Readiness => "readiness",
            Kind::Liveness => "liveness",
        }
    }
}

type Key = (String, Kind);
/// The verdicts so far; `None` until the first one.
type Verdicts = Arc<Mutex<HashMap<Key, Option<bool>>>>;

/// The probes of one pod.
pub struct Probes {
    wake: Arc<Notify>,
    tasks: HashMap<Key, JoinHandle<()>>,
    verdicts: Verdicts,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Probes {
    /// None yet; `wake` hears of every new verdict.
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { wake, tasks: HashMap::new(), verdicts: Verdicts::default() }
    }

    /// Probes the containers that run, and no others.
    pub fn follow(&mut self, agent: &Arc<Agent>, pod: &Arc<Pod>, truth: &Truth) {
        let running = |id: &str| truth.containers.iter().any(|seen| seen.status.id == id && seen.running());
        self.tasks.retain(|(id, _), task| {
            let keep = running(id);
            if !keep {
                task.abort();
            }
            keep
        });
        self.lock().retain(|(id, _), _| running(id));
        let sidecars =
            pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(|init| is_sidecar(init));
        for container in pod.spec.iter().flat_map(|spec| &spec.containers).chain(sidecars) {
            let Some(seen) = truth.latest(&container.name).filter(|seen| seen.running()) else { continue };
            for kind in Kind::ALL {
                let key = (seen.status.id.clone(), kind);
                let Some(probe) = kind.of(container).filter(|_| !self.tasks.contains_key(&key)) else { continue };
                self.lock().insert(key.clone(), known(pod, &seen.status.id, kind));
                let prober = Prober {
                    agent: agent.clone(),
                    pod: pod.clone(),
                    container: container.clone(),
                    probe: probe.clone(),
                    key: key.clone(),
                    ip: truth.ips().first().cloned().unwrap_or_else(|| agent.node_ip.to_string()),
                    verdicts: self.verdicts.clone(),
                    wake: self.wake.clone(),
                };
                self.tasks.insert(key, tokio::spawn(prober.run()));
            }
        }
    }

    /// Ends all probing.
    pub fn stop(&mut self) {
        self.tasks.drain().for_each(|(_, task)| task.abort());
    }

    /// What the probes say of each container that has any, by id.
    pub fn health(&self) -> HashMap<String, Health> {
        let mut health = HashMap::new();
        for ((id, kind), verdict) in self.lock().iter() {
            let entry: &mut Health = health.entry(id.clone()).or_insert(Health { started: true, ready: true });
            match kind {
                Kind::Startup => entry.started = *verdict == Some(true),
                Kind::Readiness => entry.ready = *verdict == Some(true),
                Kind::Liveness => {}
            }
        }
        health
    }

    /// The containers that must be restarted: name, id, and which probe says so.
    pub fn unhealthy(&self, truth: &Truth) -> Vec<(String, String, &'static str)> {
        let verdicts = self.lock();
        let failed = |kind: Kind, id: &str| verdicts.get(&(id.to_string(), kind)) == Some(&Some(false));
        let mut found = Vec::new();
        for seen in truth.containers.iter().filter(|seen| seen.running()) {
            let kind = [Kind::Startup, Kind::Liveness].into_iter().find(|kind| failed(*kind, &seen.status.id));
            found.extend(kind.map(|kind| (seen.name().to_string(), seen.status.id.clone(), kind.word())));
        }
        found
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Option<bool>>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an earlier kubelet found out about this container, so that a restarted one does not take it back.
fn known(pod: &Pod, id: &str, kind: Kind) -> Option<bool> {
    let init = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()).chain(init);
    let same = |known: &Option<String>| known.as_deref().is_some_and(|known| known.ends_with(&format!("://{id}")));
    let status = statuses.find(|status| same(&status.container_id))?;
    let holds = match kind {
        Kind::Startup => status.started == Some(true),
        Kind::Readiness => status.ready,
        Kind::Liveness => false,
    };
    holds.then_some(true)
}

/// One probe of one container.
struct Prober {
    agent: Arc<Agent>,
    pod: Arc<Pod>,
    container: Container,
    probe: Probe,
    key: Key,
    ip: String,
    verdicts: Verdicts,
    wake: Arc<Notify>,
}

impl Prober {
    async fn run(self) {
        let seconds = |value: Option<i32>, default: u64| value.map_or(default, |value| value.max(0) as u64);
        let period = Duration::from_secs(seconds(self.probe.period_seconds, 10).max(1));
        tokio::time::sleep(Duration::from_secs(seconds(self.probe.initial_delay_seconds, 0))).await;
        let mut streak = Streak::new(&self.probe);
        loop {
            if self.wanted() {
                let result = self.probe().await;
                if let Err(message) = &result {
                    self.tell(message);
                }
                if let Some(verdict) = streak.add(result.is_ok()) {
                    self.decide(verdict);
                    // A container that has started is not asked again, and one that must end neither.
                    if self.key.1 == Kind::Startup || (self.key.1 == Kind::Liveness && !verdict) {
                        return;
                    }
                }
            }
            tokio::time::sleep(period).await;
        }
    }

    /// The other probes wait for the one that says that the container has started.
    fn wanted(&self) -> bool {
        let startup = (self.key.0.clone(), Kind::Startup);
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        self.key.1 == Kind::Startup || verdicts.get(&startup).is_none_or(|verdict| *verdict == Some(true))
    }

    async fn probe(&self) -> Result<(), String> {
        let timeout = Duration::from_secs(self.probe.timeout_seconds.unwrap_or(1).max(1) as u64);
        let target = Target { agent: &self.agent, container: &self.container, id: &self.key.0, ip: &self.ip, timeout };
        if let Some(action) = &self.probe.exec {
            target.exec(action).await
        } else if let Some(action) = &self.probe.http_get {
            target.http(action).await
        } else if let Some(action) = &self.probe.tcp_socket {
            target.tcp(action).await
        } else {
            Ok(())
        }
    }

    fn tell(&self, message: &str) {
        let mut word = self.key.1.word().to_string();
        word[..1].make_ascii_uppercase();
        let about = container_reference(&self.pod, &self.container);
        self.agent.recorder.warning(about, "Unhealthy", format!("{word} probe failed: {message}"));
    }

    fn decide(&self, verdict: bool) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let old = verdicts.insert(self.key.clone(), Some(verdict));
        drop(verdicts);
        if old != Some(Some(verdict)) {
            self.wake.notify_one();
        }
    }
}

/// Counts equal results until they make a verdict.
struct Streak {
    success: bool,
    length: i32,
    success_threshold: i32,
    failure_threshold: i32,
}

impl Streak {
    fn new(probe: &Probe) -> Self {
        let success_threshold = probe.success_threshold.unwrap_or(1).max(1);
        let failure_threshold = probe.failure_threshold.unwrap_or(3).max(1);
        Self { success: false, length: 0, success_threshold, failure_threshold }
    }

    /// The verdict, once enough results in a row agree.
    fn add(&mut self, success: bool) -> Option<bool> {
        self.length = if success == self.success { self.length.saturating_add(1) } else { 1 };
        self.success = success;
        let threshold = if success { self.success_threshold } else { self.failure_threshold };
        (self.length >= threshold).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_need_results_in_a_row() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Default::default() };
        let mut streak = Streak::new(&probe);
        let verdicts: Vec<_> =
            [true, true, false, false, true, false, false, false].map(|result| streak.add(result)).into();
        assert_eq!(verdicts, [None, Some(true), None, None, None, None, None, Some(false)]);
    }
}
