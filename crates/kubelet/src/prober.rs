//! The prober: one task per probe of a running container, which notifies the pod worker when a result changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    context::{KubeletContext, container_reference, pod_name, pod_namespace, pod_uid},
    handlers::{HandlerError, HandlerSuccess, HandlerTarget},
    pod_spec::{find_container, is_sidecar},
    pod_status::ContainerHealth,
    runtime_status::PodRuntimeStatus,
};

/// User agent of HTTP probes.
const USER_AGENT: &str = "kube-probe/1.36";
/// Attempts of a probe that ends with an error of the node.
const MAX_PROBE_ATTEMPTS: usize = 3;

/// Type of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ProbeType {
    Startup,
    Readiness,
    Liveness,
}

impl ProbeType {
    const ALL: [ProbeType; 3] = [ProbeType::Startup, ProbeType::Readiness, ProbeType::Liveness];

    fn probe_of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeType::Startup => container.startup_probe.as_ref(),
            ProbeType::Readiness => container.readiness_probe.as_ref(),
            ProbeType::Liveness => container.liveness_probe.as_ref(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            ProbeType::Startup => "startup",
            ProbeType::Readiness => "readiness",
            ProbeType::Liveness => "liveness",
        }
    }
}

type ProbeKey = (String, ProbeType);
/// Probe results; `None` until the first one.
type ProbeResults = Arc<Mutex<HashMap<ProbeKey, Option<bool>>>>;

/// The probes of one pod.
pub struct ProbeManager {
    wake: Arc<Notify>,
    tasks: HashMap<ProbeKey, JoinHandle<()>>,
    results: ProbeResults,
}

impl Drop for ProbeManager {
    fn drop(&mut self) {
        self.stop_probes();
    }
}

impl ProbeManager {
    /// Creates an empty manager; `wake` is notified of every changed result.
    pub fn new(wake: Arc<Notify>) -> Self {
        Self { wake, tasks: HashMap::new(), results: ProbeResults::default() }
    }

    /// Starts and stops probe workers to match the running containers.
    pub fn sync_probes(&mut self, kubelet: &Arc<KubeletContext>, pod: &Arc<Pod>, runtime_status: &PodRuntimeStatus) {
        self.stop_probes_of_exited(runtime_status);
        let sidecars =
            pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).filter(|init| is_sidecar(init));
        for container in pod.spec.iter().flat_map(|spec| &spec.containers).chain(sidecars) {
            let Some(record) = runtime_status.latest_container(&container.name).filter(|record| record.is_running())
            else {
                continue;
            };
            for kind in ProbeType::ALL {
                let key = (record.status.id.clone(), kind);
                let Some(probe) = kind.probe_of(container).filter(|_| !self.tasks.contains_key(&key)) else { continue };
                self.lock_results().insert(key.clone(), initial_result(pod, &record.status.id, kind));
                let prober = ProbeWorker {
                    kubelet: kubelet.clone(),
                    pod: pod.clone(),
                    container: container.clone(),
                    probe: probe.clone(),
                    key: key.clone(),
                    ip: kubelet.pod_ips(pod, runtime_status).into_iter().next().unwrap_or_default(),
                    started_at: record.status.started_at,
                    results: self.results.clone(),
                    wake: self.wake.clone(),
                };
                self.tasks.insert(key, tokio::spawn(prober.run()));
            }
        }
    }

    /// Stops all probes.
    pub fn stop_probes(&mut self) {
        self.tasks.drain().for_each(|(_, task)| task.abort());
    }

    /// Stops liveness and startup probes. A terminating pod's readiness is still probed.
    pub fn stop_restarting_probes(&mut self) {
        self.tasks.retain(|(_, kind), task| {
            let keep = *kind == ProbeType::Readiness;
            if !keep {
                task.abort();
            }
            keep
        });
    }

    /// Stops the probes of containers that no longer run.
    pub fn stop_probes_of_exited(&mut self, runtime_status: &PodRuntimeStatus) {
        let running =
            |id: &str| runtime_status.containers.iter().any(|record| record.status.id == id && record.is_running());
        self.tasks.retain(|(id, _), task| {
            let keep = running(id);
            if !keep {
                task.abort();
            }
            keep
        });
        self.lock_results().retain(|(id, _), _| running(id));
    }

    /// Returns the results of each probed container, by id.
    pub fn container_health(&self) -> HashMap<String, ContainerHealth> {
        let mut health = HashMap::new();
        for ((id, kind), verdict) in self.lock_results().iter() {
            let entry: &mut ContainerHealth =
                health.entry(id.clone()).or_insert(ContainerHealth { started: true, ready: true });
            match kind {
                ProbeType::Startup => entry.started = *verdict == Some(true),
                ProbeType::Readiness => entry.ready = *verdict == Some(true),
                ProbeType::Liveness => {}
            }
        }
        health
    }

    /// Returns the containers to restart.
    pub fn failed_containers(&self, pod: &Pod, runtime_status: &PodRuntimeStatus) -> Vec<FailedContainer> {
        let verdicts = self.lock_results();
        let failed = |kind: ProbeType, id: &str| verdicts.get(&(id.to_string(), kind)) == Some(&Some(false));
        let mut found = Vec::new();
        for record in runtime_status.containers.iter().filter(|record| record.is_running()) {
            let kinds = [ProbeType::Startup, ProbeType::Liveness];
            let Some(kind) = kinds.into_iter().find(|kind| failed(*kind, &record.status.id)) else { continue };
            let container = find_container(pod, record.name());
            let probe = container.as_deref().and_then(|container| kind.probe_of(container));
            let grace = probe.and_then(|probe| probe.termination_grace_period_seconds);
            found.push(FailedContainer {
                name: record.name().into(),
                id: record.status.id.clone(),
                probe: kind.as_str(),
                grace_period: grace.map(|seconds| Duration::from_secs(seconds.max(0) as u64)),
            });
        }
        found
    }

    fn lock_results(&self) -> std::sync::MutexGuard<'_, HashMap<ProbeKey, Option<bool>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running container that failed its liveness or startup probe.
#[derive(Debug, PartialEq, Eq)]
pub struct FailedContainer {
    /// Container name.
    pub name: String,
    /// Container id.
    pub id: String,
    /// The failed probe: `liveness` or `startup`.
    pub probe: &'static str,
    /// Grace period of the probe, which overrides the pod's.
    pub grace_period: Option<Duration>,
}

/// Returns the result reported by an earlier kubelet for this container, so that a restart does not reset it.
fn initial_result(pod: &Pod, id: &str, kind: ProbeType) -> Option<bool> {
    let init = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let mut statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten()).chain(init);
    let same = |known: &Option<String>| known.as_deref().is_some_and(|known| known.ends_with(&format!("://{id}")));
    let status = statuses.find(|status| same(&status.container_id))?;
    let holds = match kind {
        ProbeType::Startup => status.started == Some(true),
        ProbeType::Readiness => status.ready,
        ProbeType::Liveness => false,
    };
    holds.then_some(true)
}

/// One probe of one container.
struct ProbeWorker {
    kubelet: Arc<KubeletContext>,
    pod: Arc<Pod>,
    container: Container,
    probe: Probe,
    key: ProbeKey,
    ip: String,
    /// Start of the container, in nanoseconds.
    started_at: i64,
    results: ProbeResults,
    wake: Arc<Notify>,
}

impl ProbeWorker {
    async fn run(self) {
        let seconds = |value: Option<i32>, default: u64| value.map_or(default, |value| value.max(0) as u64);
        let period = Duration::from_secs(seconds(self.probe.period_seconds, 10).max(1));
        let delay = Duration::from_secs(seconds(self.probe.initial_delay_seconds, 0));
        tokio::time::sleep(delay.saturating_sub(self.container_age())).await;
        let mut streak = ResultStreak::new(&self.probe);
        loop {
            if self.is_due()
                && let Some(success) = self.probe_container().await
                && let Some(verdict) = streak.add_result(success)
            {
                self.set_result(verdict);
                // A started container needs no further startup probes; one that failed liveness is about to be killed.
                if self.key.1 == ProbeType::Startup || (self.key.1 == ProbeType::Liveness && !verdict) {
                    return;
                }
            }
            tokio::time::sleep(period).await;
        }
    }

    /// Returns the time since the container started.
    fn container_age(&self) -> Duration {
        let started = jiff::Timestamp::from_nanosecond(self.started_at.into()).unwrap_or_default();
        let age = jiff::Timestamp::now().duration_since(started);
        if self.started_at > 0 { age.try_into().unwrap_or_default() } else { Duration::ZERO }
    }

    /// Whether the probe may run: other probes wait for the startup probe.
    fn is_due(&self) -> bool {
        let startup = (self.key.0.clone(), ProbeType::Startup);
        let verdicts = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        self.key.1 == ProbeType::Startup || verdicts.get(&startup).is_none_or(|verdict| *verdict == Some(true))
    }

    /// Probes once. `None` after an error of the node, which says nothing about the container.
    async fn probe_container(&self) -> Option<bool> {
        let mut result = self.run_probe().await;
        for _ in 1..MAX_PROBE_ATTEMPTS {
            if !matches!(&result, Err(error) if !error.is_failure()) {
                break;
            }
            result = self.run_probe().await;
        }
        let mut kind = self.key.1.as_str().to_string();
        kind[..1].make_ascii_uppercase();
        self.count_result(kind.clone(), &result);
        match result {
            Ok(HandlerSuccess::Healthy) => Some(true),
            Ok(HandlerSuccess::Warning(text)) => {
                self.record_warning("ProbeWarning", format!("{kind} probe warning: {text}"));
                Some(true)
            }
            Err(error) if error.is_failure() => {
                self.record_warning("Unhealthy", format!("{kind} probe failed: {error}"));
                Some(false)
            }
            Err(error) => {
                self.record_warning(
                    "Unhealthy",
                    format!("{kind} probe errored and resulted in unknown state: {error}"),
                );
                None
            }
        }
    }

    fn count_result(&self, kind: String, result: &Result<HandlerSuccess, HandlerError>) {
        let result = match result {
            Ok(_) => "successful",
            Err(error) if error.is_failure() => "failed",
            Err(_) => "unknown",
        };
        let (namespace, pod, uid) = (pod_namespace(&self.pod), pod_name(&self.pod), pod_uid(&self.pod));
        let container = self.container.name.clone();
        self.kubelet.probe_counts.add([kind, container, namespace.into(), pod.into(), uid.into(), result.into()]);
    }

    async fn run_probe(&self) -> Result<HandlerSuccess, HandlerError> {
        let timeout = Duration::from_secs(self.probe.timeout_seconds.unwrap_or(1).max(1) as u64);
        let target = HandlerTarget {
            kubelet: &self.kubelet,
            container: &self.container,
            id: &self.key.0,
            ip: &self.ip,
            timeout,
        };
        let healthy = |()| HandlerSuccess::Healthy;
        if let Some(action) = &self.probe.exec {
            target.run_exec(action).await.map(healthy)
        } else if let Some(action) = &self.probe.http_get {
            target.check_http(action, USER_AGENT).await
        } else if let Some(action) = &self.probe.tcp_socket {
            target.check_tcp(action).await.map(healthy)
        } else if let Some(action) = &self.probe.grpc {
            target.check_grpc(action).await.map(healthy)
        } else {
            Ok(HandlerSuccess::Healthy)
        }
    }

    fn record_warning(&self, reason: &'static str, message: String) {
        let about = container_reference(&self.pod, &self.container);
        self.kubelet.recorder.record_warning(about, reason, message);
    }

    fn set_result(&self, verdict: bool) {
        let mut verdicts = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let old = verdicts.insert(self.key.clone(), Some(verdict));
        drop(verdicts);
        if old != Some(Some(verdict)) {
            self.wake.notify_one();
        }
    }
}

/// Counts consecutive equal results up to the threshold.
struct ResultStreak {
    success: bool,
    length: i32,
    success_threshold: i32,
    failure_threshold: i32,
}

impl ResultStreak {
    fn new(probe: &Probe) -> Self {
        let success_threshold = probe.success_threshold.unwrap_or(1).max(1);
        let failure_threshold = probe.failure_threshold.unwrap_or(3).max(1);
        Self { success: false, length: 0, success_threshold, failure_threshold }
    }

    /// Adds a result; returns it once the threshold is reached.
    fn add_result(&mut self, success: bool) -> Option<bool> {
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
    fn result_needs_consecutive_equal_probes() {
        let probe = Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Default::default() };
        let mut streak = ResultStreak::new(&probe);
        let verdicts: Vec<_> =
            [true, true, false, false, true, false, false, false].map(|result| streak.add_result(result)).into();
        assert_eq!(verdicts, [None, Some(true), None, None, None, None, None, Some(false)]);
    }
}
