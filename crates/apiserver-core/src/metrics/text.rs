//! Prometheus's text: a header for each name, then its lines in order.

use std::{fmt::Write as _, hash::Hash};

use crate::metrics::family::{Counters, Gauges, Histograms};

/// A page in the making.
#[derive(Default)]
pub struct Page {
    text: String,
}

impl Page {
    /// The finished page.
    pub fn text(self) -> String {
        self.text
    }

    /// What the lines that follow are.
    pub fn header(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One value.
    pub fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    /// All values of counters.
    pub fn counters<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        counters: &Counters<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.header(name, help, "counter");
        self.sorted(name, counters.all(), labels);
    }

    /// All values of gauges.
    pub fn gauges<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        gauges: &Gauges<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.header(name, help, "gauge");
        self.sorted(name, gauges.all(), labels);
    }

    fn sorted<K>(&mut self, name: &str, values: Vec<(K, f64)>, labels: impl Fn(&K) -> String) {
        let mut lines: Vec<(String, f64)> = values.iter().map(|(key, value)| (labels(key), *value)).collect();
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines.iter().for_each(|(labels, value)| self.line(name, labels, *value));
    }

    /// All values of histograms.
    pub fn histograms<K: Clone + Eq + Hash>(
        &mut self,
        name: &str,
        help: &str,
        histograms: &Histograms<K>,
        labels: impl Fn(&K) -> String,
    ) {
        self.header(name, help, "histogram");
        let mut all: Vec<_> = histograms.all().into_iter().map(|(key, seen)| (labels(&key), seen)).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        for (labels, seen) in all {
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, count) in &seen.up_to {
                let _ = writeln!(self.text, "{name}_bucket{{{labels}{comma}le=\"{}\"}} {count}", bound_text(*bound));
            }
            let _ = writeln!(self.text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", seen.count);
            self.line(&format!("{name}_sum"), &labels, seen.sum);
            self.line(&format!("{name}_count"), &labels, seen.count as f64);
        }
    }
}

/// As Go writes it: a million and more with an exponent.
fn bound_text(bound: f64) -> String {
    if bound >= 1e6 { format!("1e+{:02}", bound.log10().round() as i32) } else { bound.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_are_written_as_prometheus_reads_them() {
        let histograms = Histograms::new(&[0.5, 1e6], 1.0);
        histograms.note(&"x", 3);
        let mut page = Page::default();
        page.histograms("h", "help", &histograms, |key| format!("k=\"{key}\""));
        let want = "# HELP h help\n# TYPE h histogram\nh_bucket{k=\"x\",le=\"0.5\"} 0\nh_bucket{k=\"x\",le=\"1e+06\"} 1\n\
                    h_bucket{k=\"x\",le=\"+Inf\"} 1\nh_sum{k=\"x\"} 3\nh_count{k=\"x\"} 1\n";
        assert_eq!(page.text(), want);
    }
}
