//! Points of usage, read from a kubelet's `/metrics/resource`.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// The usage of a node or a container at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsPoint {
    /// When its CPU time began to count, in nanoseconds of the Unix epoch; 0 if unknown.
    pub start_nanos: i64,
    /// When it was measured, in nanoseconds of the Unix epoch.
    pub nanos: i64,
    /// CPU time since the start, in nanoseconds.
    pub cpu_nanos: u64,
    /// Working set in bytes.
    pub memory_bytes: u64,
}

impl MetricsPoint {
    fn is_complete(&self) -> bool {
        self.nanos != 0 && self.cpu_nanos != 0 && self.memory_bytes != 0
    }
}

/// Namespace and name of a pod.
pub type PodKey = (String, String);

/// The points of a scrape.
#[derive(Debug, Default, PartialEq)]
pub struct MetricsBatch {
    /// By name of the node.
    pub nodes: BTreeMap<String, MetricsPoint>,
    /// By pod and container.
    pub pods: BTreeMap<PodKey, BTreeMap<String, MetricsPoint>>,
}

impl MetricsBatch {
    /// Adds what a node's kubelet rendered. Pods with an incomplete container are left out.
    pub fn add_node(&mut self, node: &str, text: &str, now: Timestamp) {
        let mut node_point = MetricsPoint::default();
        let mut pods: BTreeMap<PodKey, BTreeMap<String, MetricsPoint>> = BTreeMap::new();
        for sample in text.lines().filter_map(|line| Sample::parse(line, now)) {
            match sample.name {
                "node_cpu_usage_seconds_total" | "node_memory_working_set_bytes" => sample.set(&mut node_point),
                "container_cpu_usage_seconds_total"
                | "container_memory_working_set_bytes"
                | "container_start_time_seconds" => {
                    let Some((pod, container)) = sample.container() else { continue };
                    sample.set(pods.entry(pod).or_default().entry(container).or_default());
                }
                _ => {}
            }
        }
        if node_point.is_complete() {
            self.nodes.insert(node.to_owned(), node_point);
        }
        pods.retain(|_, containers| containers.values().all(MetricsPoint::is_complete));
        self.pods.append(&mut pods);
    }
}

/// A line of the exposition format.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
    nanos: i64,
}

impl<'a> Sample<'a> {
    /// Parses a line; `None` for comments and lines that are not samples.
    fn parse(line: &'a str, now: Timestamp) -> Option<Self> {
        if line.starts_with('#') {
            return None;
        }
        let (series, rest) = match line.find('{') {
            Some(_) => line.rsplit_once('}')?,
            None => line.split_once(' ')?,
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let mut fields = rest.split_ascii_whitespace();
        let value = fields.next()?.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)?;
        let millis = fields.next().and_then(|text| text.parse::<i64>().ok());
        let nanos = millis.unwrap_or_else(|| now.as_millisecond()).saturating_mul(1_000_000);
        Some(Self { name, labels, value, nanos })
    }

    fn set(&self, point: &mut MetricsPoint) {
        if self.name.ends_with("_start_time_seconds") {
            point.start_nanos = (self.value * 1e9) as i64;
            return;
        }
        point.nanos = self.nanos;
        match self.name.ends_with("_cpu_usage_seconds_total") {
            true => point.cpu_nanos = (self.value * 1e9) as u64,
            false => point.memory_bytes = self.value as u64,
        }
    }

    fn container(&self) -> Option<(PodKey, String)> {
        let pod = (self.label("namespace")?.to_owned(), self.label("pod")?.to_owned());
        Some((pod, self.label("container")?.to_owned()))
    }

    /// The values of these labels are names without quotes.
    fn label(&self, label: &str) -> Option<&'a str> {
        self.labels.split(',').find_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            (name == label).then(|| value.trim_matches('"'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time\n\
container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"p\"} 1.5 2000\n\
container_cpu_usage_seconds_total{container=\"c\",namespace=\"ns\",pod=\"half\"} 1.5 2000\n\
container_memory_working_set_bytes{container=\"c\",namespace=\"ns\",pod=\"p\"} 4.096e+06 2000\n\
container_start_time_seconds{container=\"c\",namespace=\"ns\",pod=\"p\"} 1.25\n\
node_cpu_usage_seconds_total 3 2000\n\
node_memory_working_set_bytes 5000\n\
resource_scrape_error 0\n\
broken{ 1\nnode_cpu_usage_seconds_total NaN\n";

    #[test]
    fn points_are_read_and_incomplete_pods_are_left_out() {
        let mut batch = MetricsBatch::default();
        batch.add_node("n", TEXT, Timestamp::from_millisecond(2500).unwrap());
        let node = MetricsPoint { start_nanos: 0, nanos: 2_500_000_000, cpu_nanos: 3_000_000_000, memory_bytes: 5000 };
        assert_eq!(batch.nodes["n"], node);
        assert_eq!(batch.pods.len(), 1);
        let container = MetricsPoint {
            start_nanos: 1_250_000_000,
            nanos: 2_000_000_000,
            cpu_nanos: 1_500_000_000,
            memory_bytes: 4_096_000,
        };
        assert_eq!(batch.pods[&("ns".into(), "p".into())]["c"], container);
    }
}
