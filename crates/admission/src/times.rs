//! Admission latency metrics: by step, by plug-in and by webhook, for `/metrics`.

use std::time::Instant;

use apiserver_core::metrics::{MetricsPage, family::HistogramFamily};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Latency buckets of webhook calls, in seconds; wider than those of plug-ins.
const CALLS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// A timed admission step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The operation, such as `CREATE`.
    pub operation: &'static str,
    /// The phase: `admit` or `validate`.
    pub kind: &'static str,
}

/// A finished step and whether it was rejected.
type Ended = (Step, bool);

/// The admission latency histograms.
pub struct Times {
    steps: HistogramFamily<Ended>,
    plugins: HistogramFamily<(&'static str, Ended)>,
    hooks: HistogramFamily<(String, Ended)>,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            steps: HistogramFamily::new(SECONDS, 1e-6),
            plugins: HistogramFamily::new(SECONDS, 1e-6),
            hooks: HistogramFamily::new(CALLS, 1e-6),
        }
    }
}

impl Times {
    /// Records a phase of the whole chain.
    pub fn step(&self, step: Step, rejected: bool, began: Instant) {
        self.steps.observe(&(step, rejected), micros(began));
    }

    /// Records a plug-in call.
    pub fn plugin(&self, name: &'static str, step: Step, rejected: bool, began: Instant) {
        self.plugins.observe(&(name, (step, rejected)), micros(began));
    }

    /// Records a webhook call.
    pub fn hook(&self, name: &str, step: Step, rejected: bool, began: Instant) {
        self.hooks.observe(&(name.to_owned(), (step, rejected)), micros(began));
    }

    /// Writes all histograms to a metrics page.
    pub fn write(&self, page: &mut MetricsPage) {
        let named = |name: &str, ended: &Ended| format!("name={name:?},{}", labels(ended));
        page.write_histograms(
            "apiserver_admission_controller_admission_duration_seconds",
            PLUGINS,
            &self.plugins,
            |key| named(key.0, &key.1),
        );
        page.write_histograms("apiserver_admission_step_admission_duration_seconds", STEPS, &self.steps, labels);
        page.write_histograms("apiserver_admission_webhook_admission_duration_seconds", HOOKS, &self.hooks, |key| {
            named(&key.0, &key.1)
        });
    }
}

fn labels((Step { operation, kind }, rejected): &Ended) -> String {
    format!("operation={operation:?},rejected=\"{rejected}\",type={kind:?}")
}

fn micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

const PLUGINS: &str = "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each \
operation and API resource and type (validate or admit).";
const STEPS: &str = "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and \
step type (validate or admit).";
const HOOKS: &str = "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation \
and API resource and type (validate or admit).";
