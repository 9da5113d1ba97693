//! Metrics of work queues: upstream's `workqueue_*` families, by queue name.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// Upper bounds of the histograms in seconds: ten powers of ten.
const BOUNDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

static QUEUES: Mutex<BTreeMap<&'static str, Arc<QueueMetrics>>> = Mutex::new(BTreeMap::new());

/// Metrics of one queue; queues of one name share them.
#[derive(Default)]
pub(crate) struct QueueMetrics {
    pub(crate) depth: AtomicU64,
    pub(crate) adds: AtomicU64,
    pub(crate) retries: AtomicU64,
    queued: DurationHistogram,
    worked: DurationHistogram,
    /// Start of every sync in progress.
    running: Mutex<HashMap<u64, Instant>>,
    next_run: AtomicU64,
}

#[derive(Default)]
struct DurationHistogram {
    /// One more than there are bounds: the last counts durations above all of them.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
}

impl DurationHistogram {
    fn observe(&self, duration: Duration) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration.as_secs_f64());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    fn render(&self, text: &mut String, family: &str, queue: &str) {
        let mut count = 0;
        for (position, counter) in self.counts.iter().enumerate() {
            count += counter.load(Ordering::Relaxed);
            let bound = BOUNDS.get(position).map_or("+Inf".to_owned(), |bound| format_bound(*bound));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{family}_bucket{{name=\"{queue}\",le=\"{bound}\"}} {count}");
        }
        let sum = self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9;
        let _ = writeln!(text, "{family}_sum{{name=\"{queue}\"}} {sum}\n{family}_count{{name=\"{queue}\"}} {count}");
    }
}

/// Formats a bound as Prometheus' Go client does.
fn format_bound(bound: f64) -> String {
    if bound < 1e-4 { format!("{bound:e}").replace("e-", "e-0") } else { bound.to_string() }
}

impl QueueMetrics {
    /// Returns the metrics of the queues of a name.
    pub(crate) fn for_queue(name: &'static str) -> Arc<Self> {
        lock(&QUEUES).entry(name).or_default().clone()
    }

    /// Records that a key left the queue, and starts the clock of its sync.
    pub(crate) fn start_sync(&self, waited: Duration) -> u64 {
        self.queued.observe(waited);
        let run = self.next_run.fetch_add(1, Ordering::Relaxed);
        lock(&self.running).insert(run, Instant::now());
        run
    }

    /// Records the end of a sync.
    pub(crate) fn finish_sync(&self, run: u64) {
        if let Some(started) = lock(&self.running).remove(&run) {
            self.worked.observe(started.elapsed());
        }
    }

    /// The total and the longest time of the syncs in progress, in seconds.
    fn unfinished(&self) -> (f64, f64) {
        let running = lock(&self.running);
        let seconds = running.values().map(|started| started.elapsed().as_secs_f64());
        seconds.fold((0.0, 0.0), |(total, longest): (f64, f64), one| (total + one, longest.max(one)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Renders the metrics of all queues in Prometheus text format.
pub(crate) fn render_queue_metrics(text: &mut String) {
    let queues = lock(&QUEUES).clone();
    let mut family = |name: &str, kind: &str, help: &str, render: &dyn Fn(&mut String, &str, &QueueMetrics)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} [BETA] {help}\n# TYPE {name} {kind}");
        queues.iter().for_each(|(queue, metrics)| render(text, queue, metrics));
    };
    let sample = |text: &mut String, family: &str, queue: &str, value: f64| {
        let _ = writeln!(text, "{family}{{name=\"{queue}\"}} {value}");
    };
    family("workqueue_adds_total", "counter", "Total number of adds handled by workqueue", &|text, queue, metrics| {
        sample(text, "workqueue_adds_total", queue, metrics.adds.load(Ordering::Relaxed) as f64);
    });
    family("workqueue_depth", "gauge", "Current depth of workqueue", &|text, queue, metrics| {
        sample(text, "workqueue_depth", queue, metrics.depth.load(Ordering::Relaxed) as f64);
    });
    let help = "How many seconds has the longest running processor for workqueue been running.";
    family("workqueue_longest_running_processor_seconds", "gauge", help, &|text, queue, metrics| {
        sample(text, "workqueue_longest_running_processor_seconds", queue, metrics.unfinished().1);
    });
    let help = "How long in seconds an item stays in workqueue before being requested.";
    family("workqueue_queue_duration_seconds", "histogram", help, &|text, queue, metrics| {
        metrics.queued.render(text, "workqueue_queue_duration_seconds", queue);
    });
    family(
        "workqueue_retries_total",
        "counter",
        "Total number of retries handled by workqueue",
        &|text, queue, metrics| {
            sample(text, "workqueue_retries_total", queue, metrics.retries.load(Ordering::Relaxed) as f64);
        },
    );
    let help = "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large \
                values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at \
                which this increases.";
    family("workqueue_unfinished_work_seconds", "gauge", help, &|text, queue, metrics| {
        sample(text, "workqueue_unfinished_work_seconds", queue, metrics.unfinished().0);
    });
    let help = "How long in seconds processing an item from workqueue takes.";
    family("workqueue_work_duration_seconds", "histogram", help, &|text, queue, metrics| {
        metrics.worked.render(text, "workqueue_work_duration_seconds", queue);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn families_are_rendered_by_queue() {
        let metrics = QueueMetrics::for_queue("metrics-test");
        metrics.adds.fetch_add(2, Ordering::Relaxed);
        let run = metrics.start_sync(Duration::from_millis(5));
        metrics.finish_sync(run);
        let mut text = String::new();
        render_queue_metrics(&mut text);
        assert!(text.contains("workqueue_adds_total{name=\"metrics-test\"} 2\n"), "{text}");
        assert!(
            text.contains("workqueue_queue_duration_seconds_bucket{name=\"metrics-test\",le=\"0.01\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("workqueue_queue_duration_seconds_bucket{name=\"metrics-test\",le=\"0.001\"} 0\n"),
            "{text}"
        );
        assert!(text.contains("le=\"1e-08\"") && text.contains("le=\"+Inf\""), "{text}");
        assert!(text.contains("workqueue_work_duration_seconds_count{name=\"metrics-test\"} 1\n"), "{text}");
    }
}
