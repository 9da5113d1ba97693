//! The Prometheus text format: a header for each metric, then its sorted samples.

use std::{fmt::Write as _, hash::Hash};

use crate::metrics::family::{CounterFamily, GaugeFamily, HistogramFamily};

/// A metrics page that is being written.
#[derive(Default)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// Returns the page.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Writes the help and type of a metric.
    pub fn write_header(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes one sample.
    pub fn write_sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    /// Writes all counters of a family.
    pub fn write_counters<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        counters: &CounterFamily<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.write_header(name, help, "counter");
        self.write_sorted(name, counters.collect_values(), labels);
    }

    /// Writes all gauges of a family.
    pub fn write_gauges<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        gauges: &GaugeFamily<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.write_header(name, help, "gauge");
        self.write_sorted(name, gauges.collect_values(), labels);
    }

    fn write_sorted<K>(&mut self, name: &str, values: Vec<(K, f64)>, labels: impl Fn(&K) -> String) {
        let mut lines: Vec<(String, f64)> = values.iter().map(|(key, value)| (labels(key), *value)).collect();
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines.iter().for_each(|(labels, value)| self.write_sample(name, labels, *value));
    }

    /// Writes all histograms of a family.
    pub fn write_histograms<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        histograms: &HistogramFamily<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.write_header(name, help, "histogram");
        let mut all: Vec<_> =
            histograms.collect_values().into_iter().map(|(key, snapshot)| (labels(&key), snapshot)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        for (labels, snapshot) in all {
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, count) in &snapshot.buckets {
                let _ = writeln!(self.text, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {count}", format_bound(*bound));
            }
            let _ = writeln!(self.text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", snapshot.count);
            self.write_sample(&format!("{name}_sum"), &labels, snapshot.sum);
            self.write_sample(&format!("{name}_count"), &labels, snapshot.count as f64);
        }
    }
}

/// Formats a bucket bound as Go does: with an exponent from a million on.
fn format_bound(bound: f64) -> String {
    if bound >= 1e6 { format!("1e+{:02}", bound.log10().round() as i32) } else { bound.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_in_prometheus_format() {
        let histograms = HistogramFamily::new(&[0.5, 1e6], 1.0);
        histograms.observe(&"x", 3);
        let mut page = MetricsPage::default();
        page.write_histograms("h", "help", &histograms, |key| format!("k=\"{key}\""));
        let want = "# HELP h help\n# TYPE h histogram\nh_bucket{k=\"x\",le=\"0.5\"} 0\nh_bucket{k=\"x\",le=\"1e+06\"} 1\n\
                    h_bucket{k=\"x\",le=\"+Inf\"} 1\nh_sum{k=\"x\"} 3\nh_count{k=\"x\"} 1\n";
        assert_eq!(page.into_text(), want);
    }
}
