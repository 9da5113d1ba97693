//! The scheduler's metrics, by upstream's names, in Prometheus text format.
//!
//! They are process-wide, as those of `client::metrics`.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The metrics of this process.
pub static METRICS: SchedulerMetrics = SchedulerMetrics::new();

/// A histogram with buckets that grow by a factor.
struct Histogram {
    first: f64,
    factor: f64,
    /// Observations at most as great as the bucket's bound; the last is for all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(first: f64, factor: f64, buckets: usize) -> Self {
        Self { first, factor, counts: vec![0; buckets + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        self.sum += value;
        let mut bound = self.first;
        let last = self.counts.len() - 1;
        for (place, count) in self.counts.iter_mut().enumerate() {
            if place == last || value <= bound {
                *count += 1;
            }
            bound *= self.factor;
        }
    }

    fn render(&self, text: &mut String, name: &str, labels: &str) {
        let mut bound = self.first;
        let separator = if labels.is_empty() { "" } else { "," };
        let last = self.counts.len() - 1;
        // Writing to a string cannot fail.
        for (place, count) in self.counts.iter().enumerate() {
            let _ = match place == last {
                true => writeln!(text, "{name}_bucket{{{labels}{separator}le=\"+Inf\"}} {count}"),
                false => writeln!(text, "{name}_bucket{{{labels}{separator}le=\"{bound}\"}} {count}"),
            };
            bound *= self.factor;
        }
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let total = self.counts.last().copied().unwrap_or(0);
        let _ = writeln!(text, "{name}_sum{braces} {}\n{name}_count{braces} {total}", self.sum);
    }
}

/// Histograms of one name by their labels.
type HistogramFamily = BTreeMap<String, Histogram>;

/// The values.
pub struct SchedulerMetrics {
    /// Preemption attempts.
    pub preemption_attempts: AtomicU64,
    pending_pods: [AtomicU64; 4],
    cache_size: [AtomicU64; 3],
    families: Mutex<MetricFamilies>,
}

struct MetricFamilies {
    incoming: BTreeMap<(&'static str, String), u64>,
    attempts: BTreeMap<(String, &'static str), u64>,
    algorithm: HistogramFamily,
    attempt_durations: HistogramFamily,
    sli: HistogramFamily,
    pod_attempts: HistogramFamily,
    victims: HistogramFamily,
}

const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];
const CACHE_TYPES: [&str; 3] = ["nodes", "pods", "assumed_pods"];

impl SchedulerMetrics {
    const fn new() -> Self {
        Self {
            preemption_attempts: AtomicU64::new(0),
            pending_pods: [const { AtomicU64::new(0) }; 4],
            cache_size: [const { AtomicU64::new(0) }; 3],
            families: Mutex::new(MetricFamilies {
                incoming: BTreeMap::new(),
                attempts: BTreeMap::new(),
                algorithm: BTreeMap::new(),
                attempt_durations: BTreeMap::new(),
                sli: BTreeMap::new(),
                pod_attempts: BTreeMap::new(),
                victims: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MetricFamilies> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the sizes of the queues.
    pub fn set_pending_pods(&self, counts: [usize; 4]) {
        self.pending_pods.iter().zip(counts).for_each(|(gauge, count)| gauge.store(count as u64, Ordering::Relaxed));
    }

    /// Sets the numbers of nodes, pods and assumed pods.
    pub fn set_cache_size(&self, (nodes, pods, assumed): (usize, usize, usize)) {
        let counts = [nodes, pods, assumed];
        self.cache_size.iter().zip(counts).for_each(|(gauge, count)| gauge.store(count as u64, Ordering::Relaxed));
    }

    /// Counts a pod that enters a queue.
    pub fn queue_incoming(&self, queue: &'static str, event: &str) {
        let mut families = self.lock();
        match families.incoming.get_mut(&(queue, event.to_owned())) {
            Some(count) => *count += 1,
            None => drop(families.incoming.insert((queue, event.to_owned()), 1)),
        }
    }

    /// Observes the duration of a search for a node.
    pub fn observe_algorithm(&self, duration: Duration) {
        observe(&mut self.lock().algorithm, String::new(), (0.001, 2.0, 15), duration.as_secs_f64());
    }

    /// Observes the number of victims of a preemption.
    pub fn observe_preemption_victims(&self, victims: usize) {
        observe(&mut self.lock().victims, String::new(), (1.0, 2.0, 7), victims as f64);
    }

    /// Counts a scheduled pod.
    pub fn pod_scheduled(&self, profile: &str, duration: Duration, attempts: u32, waited: Option<Duration>) {
        let mut families = self.lock();
        families.count_attempt(profile, "scheduled", duration);
        observe(&mut families.pod_attempts, String::new(), (1.0, 2.0, 5), f64::from(attempts));
        if let Some(waited) = waited {
            let attempts = if attempts >= 15 { "15+".to_owned() } else { attempts.to_string() };
            observe(&mut families.sli, format!("attempts=\"{attempts}\""), (0.01, 2.0, 20), waited.as_secs_f64());
        }
    }

    /// Counts a pod that was not scheduled.
    pub fn pod_failed(&self, profile: &str, is_rejected: bool, duration: Duration) {
        let result = if is_rejected { "unschedulable" } else { "error" };
        self.lock().count_attempt(profile, result, duration);
    }

    /// Renders all metrics.
    pub fn render(&self) -> String {
        let (mut text, families) = (String::new(), self.lock());
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let text_of = &mut text;
        header(
            text_of,
            "pending_pods",
            "gauge",
            "STABLE",
            "Number of pending pods, by the queue type. 'active' means number of pods in activeQ; 'backoff' means number of pods in backoffQ; 'unschedulable' means number of pods in unschedulablePods that the scheduler attempted to schedule and failed; 'gated' is the number of unschedulable pods that the scheduler never attempted to schedule because they are gated.",
        );
        for (queue, value) in QUEUES.iter().zip(&self.pending_pods) {
            let _ = writeln!(text_of, "scheduler_pending_pods{{queue=\"{queue}\"}} {}", load(value));
        }
        header(
            text_of,
            "cache_size",
            "gauge",
            "ALPHA",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
        );
        for (type_, value) in CACHE_TYPES.iter().zip(&self.cache_size) {
            let _ = writeln!(text_of, "scheduler_cache_size{{type=\"{type_}\"}} {}", load(value));
        }
        header(
            text_of,
            "preemption_attempts_total",
            "counter",
            "STABLE",
            "Total preemption attempts in the cluster till now",
        );
        let _ = writeln!(text_of, "scheduler_preemption_attempts_total {}", load(&self.preemption_attempts));
        header(
            text_of,
            "queue_incoming_pods_total",
            "counter",
            "STABLE",
            "Number of pods added to scheduling queues by event and queue type.",
        );
        for ((queue, event), count) in &families.incoming {
            let _ =
                writeln!(text_of, "scheduler_queue_incoming_pods_total{{event=\"{event}\",queue=\"{queue}\"}} {count}");
        }
        header(
            text_of,
            "schedule_attempts_total",
            "counter",
            "STABLE",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be scheduled, while 'error' means an internal scheduler problem.",
        );
        for ((profile, result), count) in &families.attempts {
            let _ = writeln!(
                text_of,
                "scheduler_schedule_attempts_total{{profile=\"{profile}\",result=\"{result}\"}} {count}"
            );
        }
        let histograms = [
            (
                "scheduling_attempt_duration_seconds",
                "STABLE",
                "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
                &families.attempt_durations,
            ),
            (
                "scheduling_algorithm_duration_seconds",
                "ALPHA",
                "Scheduling algorithm latency in seconds",
                &families.algorithm,
            ),
            (
                "pod_scheduling_sli_duration_seconds",
                "BETA",
                "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and might involve multiple scheduling attempts.",
                &families.sli,
            ),
            (
                "pod_scheduling_attempts",
                "STABLE",
                "Number of attempts to successfully schedule a pod.",
                &families.pod_attempts,
            ),
            ("preemption_victims", "STABLE", "Number of selected preemption victims", &families.victims),
        ];
        for (name, stability, help, family) in histograms {
            header(text_of, name, "histogram", stability, help);
            family
                .iter()
                .for_each(|(labels, histogram)| histogram.render(text_of, &format!("scheduler_{name}"), labels));
        }
        text
    }
}

impl MetricFamilies {
    fn count_attempt(&mut self, profile: &str, result: &'static str, duration: Duration) {
        *self.attempts.entry((profile.to_owned(), result)).or_insert(0) += 1;
        let labels = format!("profile=\"{profile}\",result=\"{result}\"");
        observe(&mut self.attempt_durations, labels, (0.001, 2.0, 15), duration.as_secs_f64());
    }
}

fn observe(family: &mut HistogramFamily, labels: String, (first, factor, buckets): (f64, f64, usize), value: f64) {
    family.entry(labels).or_insert_with(|| Histogram::new(first, factor, buckets)).observe(value);
}

fn header(text: &mut String, name: &str, type_: &str, stability: &str, help: &str) {
    let _ = writeln!(text, "# HELP scheduler_{name} [{stability}] {help}\n# TYPE scheduler_{name} {type_}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_cumulative() {
        let mut histogram = Histogram::new(1.0, 2.0, 2);
        [0.5, 1.5, 9.0].into_iter().for_each(|value| histogram.observe(value));
        let mut text = String::new();
        histogram.render(&mut text, "m", "a=\"b\"");
        assert_eq!(
            text,
            "m_bucket{a=\"b\",le=\"1\"} 1\nm_bucket{a=\"b\",le=\"2\"} 2\nm_bucket{a=\"b\",le=\"+Inf\"} 3\nm_sum{a=\"b\"} 11\nm_count{a=\"b\"} 3\n"
        );
    }
}
