//! Admission latency metrics: by step, by plug-in and by webhook, for `/metrics`.

use std::time::Instant;

use apiserver_core::metrics::{MetricsPage, family::HistogramFamily};

const LATENCY_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Latency buckets of webhook calls, in seconds; wider than those of plug-ins.
const WEBHOOK_LATENCY_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// A timed admission step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionStep {
    /// The operation, such as `CREATE`.
    pub operation: &'static str,
    /// The phase: `admit` or `validate`.
    pub kind: &'static str,
}

/// A finished step and whether it was rejected.
type FinishedStep = (AdmissionStep, bool);

/// The admission latency histograms.
pub struct AdmissionMetrics {
    steps: HistogramFamily<FinishedStep>,
    plugins: HistogramFamily<(&'static str, FinishedStep)>,
    hooks: HistogramFamily<(String, FinishedStep)>,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            steps: HistogramFamily::new(LATENCY_BUCKETS, 1e-6),
            plugins: HistogramFamily::new(LATENCY_BUCKETS, 1e-6),
            hooks: HistogramFamily::new(WEBHOOK_LATENCY_BUCKETS, 1e-6),
        }
    }
}

impl AdmissionMetrics {
    /// Records a phase of the whole chain.
    pub fn observe_step(&self, step: AdmissionStep, rejected: bool, began: Instant) {
        self.steps.observe(&(step, rejected), elapsed_micros(began));
    }

    /// Records a plug-in call.
    pub fn observe_plugin(&self, name: &'static str, step: AdmissionStep, rejected: bool, began: Instant) {
        self.plugins.observe(&(name, (step, rejected)), elapsed_micros(began));
    }

    /// Records a webhook call.
    pub fn observe_webhook(&self, name: &str, step: AdmissionStep, rejected: bool, began: Instant) {
        self.hooks.observe(&(name.to_owned(), (step, rejected)), elapsed_micros(began));
    }

    /// Writes all histograms to a metrics page.
    pub fn write_page(&self, page: &mut MetricsPage) {
        let named = |name: &str, ended: &FinishedStep| format!("name={name:?},{}", step_labels(ended));
        page.write_histograms(
            "apiserver_admission_controller_admission_duration_seconds",
            PLUGINS,
            &self.plugins,
            |key| named(key.0, &key.1),
        );
        page.write_histograms("apiserver_admission_step_admission_duration_seconds", STEPS, &self.steps, step_labels);
        page.write_histograms("apiserver_admission_webhook_admission_duration_seconds", HOOKS, &self.hooks, |key| {
            named(&key.0, &key.1)
        });
    }
}

fn step_labels((AdmissionStep { operation, kind }, rejected): &FinishedStep) -> String {
    format!("operation={operation:?},rejected=\"{rejected}\",type={kind:?}")
}

fn elapsed_micros(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX)
}

const PLUGINS: &str = "[STABLE] Admission controller latency histogram in seconds, identified by name and broken out for each \
operation and API resource and type (validate or admit).";
const STEPS: &str = "[STABLE] Admission sub-step latency histogram in seconds, broken out for each operation and API resource and \
step type (validate or admit).";
const HOOKS: &str = "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation \
and API resource and type (validate or admit).";
