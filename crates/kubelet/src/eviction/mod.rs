//! Eviction: when a resource of the node runs short, the node says so and pods are ended until it does not.
//!
//! Every ten seconds the node is measured. A pod over its limit of local storage is evicted in any case. A threshold that
//! is met makes the node's pressure condition true, which lasts for the transition period; then unused images are
//! removed if the disk is short, and if that is not enough, one pod is evicted in each round.

mod ranking;
mod usage;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use self::usage::{PodUsage, measure_pods, observe_node};
use crate::{
    admission::{AdmissionRejection, was_admitted_before},
    blocking::run_blocking,
    context::{self, KubeletContext, pod_uid},
    eviction_state::{Eviction, EvictionState},
    eviction_thresholds::{
        EvictionSettings, EvictionSignal, EvictionThreshold, NodePressure, Observations, binary_quantity,
    },
    grace_period,
    image_gc::ImageGarbageCollector,
    pod_status::{EVICTED, is_terminal},
    resources::{QosClass, pod_qos_class},
};

/// Taint of nodes that are short of memory.
const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";
/// Interval between measurements.
const MONITORING_INTERVAL: Duration = Duration::from_secs(10);
/// Grace period of pods that a hard threshold evicts.
const IMMEDIATE_GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Rejects a new pod while the node is short of a resource: all but critical pods if the disk or process ids are short, and
/// BestEffort pods that do not tolerate it if memory alone is.
pub fn check_pressure(state: &EvictionState, pod: &Pod) -> Option<AdmissionRejection> {
    let pressure = state.pressure();
    if pressure.is_empty() || ranking::is_critical_pod(pod) || was_admitted_before(pod) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    if pressure.iter().eq([&NodePressure::Memory]) {
        let tolerates = spec.tolerations.iter().flatten().any(|toleration| {
            let key = toleration.key.as_deref().unwrap_or_default();
            let effect = toleration.effect.as_deref().unwrap_or_default();
            (key.is_empty() || key == MEMORY_PRESSURE_TAINT) && (effect.is_empty() || effect == "NoSchedule")
        });
        if tolerates || pod_qos_class(spec) != QosClass::BestEffort {
            return None;
        }
    }
    let names: Vec<&str> = pressure.iter().map(|pressure| pressure.condition_type()).collect();
    let message = format!("The node had condition: [{}]. ", names.join(" "));
    Some(AdmissionRejection { reason: EVICTED.into(), message })
}

/// The eviction manager.
pub struct EvictionManager {
    kubelet: Arc<KubeletContext>,
    settings: EvictionSettings,
    images: Arc<ImageGarbageCollector>,
    image_dir: PathBuf,
    /// Since when each threshold is met.
    met_since: BTreeMap<usize, Instant>,
    /// When each pressure was last seen.
    last_seen: BTreeMap<NodePressure, Instant>,
}

impl EvictionManager {
    /// Creates a manager; `image_dir` is on the file system of images.
    pub fn new(kubelet: Arc<KubeletContext>, images: Arc<ImageGarbageCollector>, image_dir: PathBuf) -> Self {
        let settings = kubelet.settings.eviction.clone();
        Self { kubelet, settings, images, image_dir, met_since: BTreeMap::new(), last_seen: BTreeMap::new() }
    }

    /// Monitors the node for ever.
    pub async fn run(mut self) {
        self.kubelet.pods.wait_for_cache_sync().await;
        loop {
            if self.settings.thresholds.is_empty()
                && self.evictable_pods().iter().all(|pod| !ranking::has_storage_limit(pod))
            {
                // Nothing can be over a limit.
                tokio::time::sleep(MONITORING_INTERVAL).await;
                continue;
            }
            self.synchronize().await;
            tokio::time::sleep(MONITORING_INTERVAL).await;
        }
    }

    fn evictable_pods(&self) -> Vec<Arc<Pod>> {
        let is_active = |pod: &Arc<Pod>| {
            !is_terminal(pod) && pod.metadata.deletion_timestamp.is_none() && self.kubelet.pods.is_active(pod_uid(pod))
        };
        self.kubelet.pods.list().into_iter().filter(is_active).collect()
    }

    async fn observe(&self) -> Observations {
        let (root_dir, image_dir) = (self.kubelet.root_dir.clone(), self.image_dir.clone());
        let memory = self.kubelet.capacity.memory;
        run_blocking(move || observe_node(&root_dir, &image_dir, memory)).await
    }

    async fn synchronize(&mut self) {
        let now = Instant::now();
        let observations = self.observe().await;
        let due = self.update_thresholds(&observations, now);
        let pods = self.evictable_pods();
        let disk_is_short =
            due.iter().any(|index| self.settings.thresholds[*index].signal.condition() == NodePressure::Disk);
        let usage = self.measure(&pods, disk_is_short).await;
        if self.evict_storage_violators(&pods, &usage) {
            return;
        }
        let Some(first) = due.first().map(|index| self.settings.thresholds[*index].clone()) else { return };
        tracing::warn!(signal = first.signal.name(), "kubelet: eviction threshold met, reclaiming");
        if disk_is_short {
            self.images.delete_unused_images().await;
            let observations = self.observe().await;
            if !first.is_met(&self.settings, &observations, true) {
                return;
            }
        }
        self.evict_one(pods, &usage, &first, &observations);
    }

    /// Notes which thresholds are met, sets the node's pressure, and returns those whose grace period is over.
    fn update_thresholds(&mut self, observations: &Observations, now: Instant) -> Vec<usize> {
        let mut due = Vec::new();
        for (index, threshold) in self.settings.thresholds.iter().enumerate() {
            if !threshold.is_met(&self.settings, observations, self.met_since.contains_key(&index)) {
                self.met_since.remove(&index);
                continue;
            }
            let since = *self.met_since.entry(index).or_insert(now);
            self.last_seen.insert(threshold.signal.condition(), now);
            if threshold.grace_period.is_none_or(|grace| now.duration_since(since) >= grace) {
                due.push(index);
            }
        }
        // Memory first, and of one signal the hard threshold.
        due.sort_by_key(|index| {
            let threshold = &self.settings.thresholds[*index];
            (threshold.signal, threshold.grace_period.is_some())
        });
        let period = self.settings.pressure_transition_period;
        self.last_seen.retain(|_, seen| now.duration_since(*seen) < period || *seen == now);
        let pressure: BTreeSet<NodePressure> = self.last_seen.keys().copied().collect();
        self.kubelet.evictions.set_pressure(pressure);
        due
    }

    async fn measure(&self, pods: &[Arc<Pod>], all: bool) -> HashMap<String, PodUsage> {
        let needed = all || !self.met_since.is_empty() || pods.iter().any(|pod| ranking::has_storage_limit(pod));
        if !needed {
            return HashMap::new();
        }
        let stats = self.kubelet.cri.container_stats().await.unwrap_or_default();
        let (kubelet, pods) = (self.kubelet.clone(), pods.to_vec());
        run_blocking(move || measure_pods(&kubelet, &stats, &pods, |pod| all || ranking::has_storage_limit(pod))).await
    }

    fn evict_storage_violators(&self, pods: &[Arc<Pod>], usage: &HashMap<String, PodUsage>) -> bool {
        let mut any = false;
        for pod in pods.iter().filter(|pod| !ranking::is_critical_pod(pod)) {
            let violation = usage.get(pod_uid(pod)).and_then(|usage| ranking::local_storage_violation(pod, usage));
            if let Some(message) = violation {
                any |= self.evict_pod(pod, Eviction { message, grace_period: IMMEDIATE_GRACE_PERIOD });
            }
        }
        any
    }

    /// Evicts the first pod in the ranking.
    fn evict_one(
        &self,
        mut pods: Vec<Arc<Pod>>,
        usage: &HashMap<String, PodUsage>,
        threshold: &EvictionThreshold,
        observations: &Observations,
    ) {
        let none = PodUsage::default();
        let usage_of = |pod: &Pod| usage.get(pod_uid(pod)).unwrap_or(&none);
        pods.retain(|pod| !ranking::is_critical_pod(pod));
        pods.sort_by_key(|pod| ranking::eviction_rank(pod, usage_of(pod), threshold.signal));
        for pod in pods {
            let grace_period = match threshold.grace_period {
                None => IMMEDIATE_GRACE_PERIOD,
                Some(_) => self.settings.max_pod_grace_period.min(grace_period::pod_grace_period(&pod)),
            };
            let message = eviction_message(&pod, usage_of(&pod), threshold, observations);
            if self.evict_pod(&pod, Eviction { message, grace_period }) {
                return;
            }
        }
        tracing::warn!(signal = threshold.signal.name(), "kubelet: no pod can be evicted");
    }

    fn evict_pod(&self, pod: &Pod, eviction: Eviction) -> bool {
        let message = eviction.message.clone();
        if !self.kubelet.evictions.evict(pod_uid(pod), eviction) {
            return false;
        }
        tracing::warn!(pod = context::format_pod(pod), message, "kubelet: evicting pod");
        self.kubelet.recorder.record_warning(context::pod_reference(pod), "Evicted", message);
        self.kubelet.wake_pod(pod_uid(pod));
        true
    }
}

/// Builds upstream's message of an eviction under pressure.
fn eviction_message(pod: &Pod, usage: &PodUsage, threshold: &EvictionThreshold, observations: &Observations) -> String {
    let resource = threshold.signal.resource();
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some(observed) = observations.get(&threshold.signal) {
        let limit = binary_quantity(threshold.value.amount(observed.capacity));
        let available = binary_quantity(observed.available);
        message.push_str(&format!("Threshold quantity: {limit}, available: {available}. "));
    }
    let used = match threshold.signal {
        EvictionSignal::MemoryAvailable => &usage.memory,
        EvictionSignal::PidAvailable => return message,
        _ => &usage.disk,
    };
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let request =
            requests.and_then(|requests| requests.get(resource)).map_or("0".into(), |request| request.0.clone());
        let Some(used) = used.get(&container.name) else { continue };
        let used_text = binary_quantity(*used);
        if *used > requests.and_then(|requests| requests.get(resource)).map_or(0, crate::quantity::to_units) {
            message.push_str(&format!(
                "Container {} was using {used_text}, request is {request}, has larger consumption of {resource}. ",
                container.name
            ));
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eviction_thresholds::{Observation, ThresholdValue};

    #[test]
    fn message_names_resource_limit_and_containers() {
        let pod: Pod = serde_json::from_value(json!({ "spec": { "containers": [{ "name": "c" }] } })).unwrap();
        let usage = PodUsage { memory: [("c".into(), 10 << 20)].into(), ..Default::default() };
        let signal = EvictionSignal::MemoryAvailable;
        let threshold = EvictionThreshold { signal, value: ThresholdValue::Amount(100 << 20), grace_period: None };
        let observed = [(signal, Observation { available: 50 << 10, capacity: 1 << 30 })].into();
        assert_eq!(
            eviction_message(&pod, &usage, &threshold, &observed),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Ki. Container c was using 10Mi, \
             request is 0, has larger consumption of memory. "
        );
    }

    #[test]
    fn node_under_pressure_takes_no_new_pods() {
        let state = EvictionState::default();
        let pod = |spec| serde_json::from_value::<Pod>(json!({ "spec": spec })).unwrap();
        let best_effort = pod(json!({ "containers": [{ "name": "c" }] }));
        let requests = json!({ "requests": { "memory": "1Mi" } });
        let burstable = pod(json!({ "containers": [{ "name": "c", "resources": requests }] }));
        let rejected = |pod: &Pod| check_pressure(&state, pod).map(|rejection| rejection.message);
        assert_eq!(rejected(&best_effort), None);
        state.set_pressure([NodePressure::Memory].into());
        assert_eq!(rejected(&best_effort).as_deref(), Some("The node had condition: [MemoryPressure]. "));
        assert_eq!(rejected(&burstable), None);
        state.set_pressure([NodePressure::Disk].into());
        assert_eq!(rejected(&burstable).as_deref(), Some("The node had condition: [DiskPressure]. "));
    }

    #[tokio::test(start_paused = true)]
    async fn pressure_lasts_for_the_transition_period() {
        let mut context = KubeletContext::unreachable();
        context.settings = Arc::new(crate::settings::KubeletSettings::default());
        let kubelet = Arc::new(context);
        let images = Arc::new(ImageGarbageCollector::new(kubelet.clone(), "/".into()));
        let mut manager = EvictionManager::new(kubelet.clone(), images, "/".into());
        let observe =
            |available| [(EvictionSignal::MemoryAvailable, Observation { available, capacity: 1 << 40 })].into();
        let start = Instant::now();
        assert_eq!(manager.update_thresholds(&observe(1), start), [0]);
        let pressure = kubelet.evictions.watch_pressure();
        assert_eq!(*pressure.borrow(), [NodePressure::Memory].into());
        let later = start + Duration::from_secs(299);
        assert!(manager.update_thresholds(&observe(1 << 39), later).is_empty() && !pressure.borrow().is_empty());
        manager.update_thresholds(&observe(1 << 39), start + Duration::from_secs(300));
        assert!(pressure.borrow().is_empty());
    }
}
