//! `/metrics/probes`: results of probes by container and type.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, PoisonError},
};

/// Labels of a count: probe type, container, namespace, pod, pod uid and result.
pub type ProbeLabels = [String; 6];

const LABEL_NAMES: [&str; 6] = ["probe_type", "container", "namespace", "pod", "pod_uid", "result"];

/// Counts of probe results.
#[derive(Default)]
pub struct ProbeCounts(Mutex<BTreeMap<ProbeLabels, u64>>);

impl ProbeCounts {
    /// Counts a result.
    pub fn add(&self, labels: ProbeLabels) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(labels).or_default() += 1;
    }

    /// Forgets a pod that has ended.
    pub fn release_pod(&self, uid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|labels, _| labels[4] != uid);
    }

    /// Renders the counts.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "# HELP prober_probe_total [BETA] Cumulative number of a liveness, readiness or startup probe for a container by \
             result.\n# TYPE prober_probe_total counter\n",
        );
        for (labels, count) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut pairs: Vec<_> =
                LABEL_NAMES.iter().zip(labels).map(|(name, value)| format!("{name}=\"{value}\"")).collect();
            pairs.sort();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "prober_probe_total{{{}}} {count}", pairs.join(","));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_until_the_pod_ends() {
        let counts = ProbeCounts::default();
        let labels = || ["Liveness", "c", "ns", "p", "u", "successful"].map(String::from);
        counts.add(labels());
        counts.add(labels());
        let line = "prober_probe_total{container=\"c\",namespace=\"ns\",pod=\"p\",pod_uid=\"u\",probe_type=\"Liveness\",result=\"successful\"} 2\n";
        assert!(counts.render().ends_with(line), "{}", counts.render());
        counts.release_pod("u");
        assert!(!counts.render().contains("{"));
    }
}
