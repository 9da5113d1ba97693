//! The `/metrics/resource` endpoint: usage of the node, its pods and containers, with upstream's names, labels and
//! timestamps.
//!
//! Unavailable samples are omitted and set `resource_scrape_error`.

use std::{collections::HashMap, fmt::Write};

use runtime::cri::{
    CriClient,
    types::{Container, ContainerState, ContainerStats, CpuUsage, MemoryUsage, PodSandboxStats},
};

use crate::{blocking::run_blocking, runtime_status::labels};

/// Collects and renders the metrics.
pub async fn render_resource_metrics(cri: &CriClient) -> String {
    let (containers, stats, sandboxes) =
        tokio::join!(cri.list_containers(HashMap::new()), cri.container_stats(), cri.sandbox_stats());
    let mut failed = false;
    let mut families = MetricFamilies::default();
    let mut log = |error: String| {
        tracing::warn!(error, "kubelet: resource metrics incomplete");
        failed = true;
    };
    match (containers, stats) {
        (Ok(containers), Ok(stats)) => families.add_containers(&containers, &stats),
        (Err(error), _) | (_, Err(error)) => log(error.to_string()),
    }
    match sandboxes {
        Ok(sandboxes) => families.add_pods(&sandboxes),
        Err(error) => log(error.to_string()),
    }
    match run_blocking(NodeUsage::read).await {
        Ok(node) => families.add_node(&node),
        Err(error) => log(error.to_string()),
    }
    families.add_sample("resource_scrape_error", vec![], f64::from(u8::from(failed)), None);
    families.render()
}

/// Name, type and help of the metric families, in output order.
const METRIC_FAMILIES: [(&str, &str, &str); 8] = [
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds"),
    ("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes"),
    ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds"),
    ("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds"),
    ("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes"),
    ("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds"),
    ("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes"),
    ("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise"),
];

type MetricLabels<'a> = Vec<(&'static str, &'a str)>;

/// Samples by family.
#[derive(Default)]
struct MetricFamilies(HashMap<&'static str, Vec<String>>);

impl MetricFamilies {
    /// Adds the running containers.
    fn add_containers(&mut self, containers: &[Container], stats: &[ContainerStats]) {
        let running = containers.iter().filter(|container| container.state == ContainerState::ContainerRunning as i32);
        let started: HashMap<&str, i64> =
            running.map(|container| (container.id.as_str(), container.created_at)).collect();
        for stats in stats {
            let Some(attributes) = &stats.attributes else { continue };
            let Some(created) = started.get(attributes.id.as_str()) else { continue };
            let Some(place) = pod_metric_labels(&attributes.labels) else { continue };
            let Some(container) = attributes.labels.get(labels::CONTAINER) else { continue };
            let named: MetricLabels<'_> = [("container", container.as_str())].into_iter().chain(place).collect();
            self.add_cpu("container_cpu_usage_seconds_total", &named, stats.cpu.as_ref());
            self.add_memory("container_memory_working_set_bytes", &named, stats.memory.as_ref());
            if *created > 0 {
                self.add_sample("container_start_time_seconds", named, nanos_to_seconds(*created as u64), None);
            }
        }
    }

    fn add_pods(&mut self, sandboxes: &[PodSandboxStats]) {
        for sandbox in sandboxes {
            let Some(place) = sandbox.attributes.as_ref().and_then(|attributes| pod_metric_labels(&attributes.labels))
            else {
                continue;
            };
            let Some(stats) = &sandbox.linux else { continue };
            self.add_cpu("pod_cpu_usage_seconds_total", &place, stats.cpu.as_ref());
            self.add_memory("pod_memory_working_set_bytes", &place, stats.memory.as_ref());
        }
    }

    fn add_node(&mut self, node: &NodeUsage) {
        self.add_sample("node_cpu_usage_seconds_total", vec![], node.cpu, Some(node.at));
        self.add_sample("node_memory_working_set_bytes", vec![], node.memory as f64, Some(node.at));
    }

    fn add_cpu(&mut self, name: &'static str, labels: &MetricLabels<'_>, usage: Option<&CpuUsage>) {
        let used = usage.and_then(|usage| Some((usage.usage_core_nano_seconds.as_ref()?.value, usage.timestamp)));
        if let Some((used, at)) = used {
            self.add_sample(name, labels.clone(), nanos_to_seconds(used), Some(at));
        }
    }

    fn add_memory(&mut self, name: &'static str, labels: &MetricLabels<'_>, usage: Option<&MemoryUsage>) {
        let used = usage.and_then(|usage| Some((usage.working_set_bytes.as_ref()?.value, usage.timestamp)));
        if let Some((used, at)) = used {
            self.add_sample(name, labels.clone(), used as f64, Some(at));
        }
    }

    /// Adds a sample; `at` is in nanoseconds.
    fn add_sample(&mut self, name: &'static str, labels: MetricLabels<'_>, value: f64, at: Option<i64>) {
        let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let at = at.map(|at| format!(" {}", at / 1_000_000)).unwrap_or_default();
        self.0.entry(name).or_default().push(format!("{name}{labels} {value}{at}"));
    }

    fn render(mut self) -> String {
        let mut text = String::new();
        for (name, kind, help) in METRIC_FAMILIES {
            let Some(mut lines) = self.0.remove(name) else { continue };
            lines.sort_unstable();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} [STABLE] {help}\n# TYPE {name} {kind}\n{}", lines.join("\n"));
        }
        text
    }
}

/// Returns the labels `namespace` and `pod`. Validation makes escaping unnecessary.
fn pod_metric_labels(labels: &HashMap<String, String>) -> Option<MetricLabels<'_>> {
    let label = |name: &str| labels.get(name).map(String::as_str);
    Some(vec![("namespace", label(labels::POD_NAMESPACE)?), ("pod", label(labels::POD_NAME)?)])
}

fn nanos_to_seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Usage of the node.
#[derive(Debug, PartialEq)]
pub struct NodeUsage {
    /// Cumulative CPU seconds.
    pub cpu: f64,
    /// Working set in bytes.
    pub memory: u64,
    /// Timestamp in nanoseconds.
    pub at: i64,
}

impl NodeUsage {
    /// Reads the kernel's numbers.
    pub fn read() -> std::io::Result<Self> {
        let (stat, meminfo) = (std::fs::read_to_string("/proc/stat")?, std::fs::read_to_string("/proc/meminfo")?);
        let at = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or_default();
        let unknown = || std::io::Error::other("the kernel's numbers are in no known form");
        Self::parse(&stat, &meminfo, rustix::param::clock_ticks_per_second(), at).ok_or_else(unknown)
    }

    fn parse(stat: &str, meminfo: &str, ticks: u64, at: i64) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().map_while(|time| time.parse().ok()).collect();
        let [user, nice, system, _idle, _wait, irq, softirq, ..] = times[..] else { return None };
        let bytes = |name: &str| -> Option<u64> {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        // Inactive file cache is reclaimable.
        let spare = bytes("MemFree")? + bytes("Inactive(file)")?;
        let memory = bytes("MemTotal")?.saturating_sub(spare);
        Some(Self { cpu: (user + nice + system + irq + softirq) as f64 / ticks as f64, memory, at })
    }
}

#[cfg(test)]
mod tests {
    use runtime::cri::types::{ContainerAttributes, LinuxPodSandboxStats, PodSandboxAttributes, UInt64Value};

    use super::*;

    const AT: i64 = 1_700_000_000_123_456_789;

    fn belongs(container: Option<&str>) -> HashMap<String, String> {
        let pod = [(labels::POD_NAMESPACE, "default"), (labels::POD_NAME, "p")];
        let own = container.map(|name| (labels::CONTAINER, name));
        pod.into_iter().chain(own).map(|(label, value)| (label.into(), value.into())).collect()
    }

    fn cpu(nanoseconds: u64) -> Option<CpuUsage> {
        let used = Some(UInt64Value { value: nanoseconds });
        Some(CpuUsage { timestamp: AT, usage_core_nano_seconds: used, ..Default::default() })
    }

    fn memory(bytes: u64) -> Option<MemoryUsage> {
        let used = Some(UInt64Value { value: bytes });
        Some(MemoryUsage { timestamp: AT, working_set_bytes: used, ..Default::default() })
    }

    fn container(id: &str, state: ContainerState) -> Container {
        Container { id: id.into(), state: state as i32, created_at: 1_500_000_000, ..Default::default() }
    }

    fn stats(id: &str, name: Option<&str>, cpu: Option<CpuUsage>) -> ContainerStats {
        let attributes = ContainerAttributes { id: id.into(), labels: belongs(name), ..Default::default() };
        ContainerStats { attributes: Some(attributes), cpu, memory: memory(1 << 20), ..Default::default() }
    }

    #[test]
    fn usage_is_rendered_per_family() {
        let running = ContainerState::ContainerRunning;
        let containers =
            [container("1", running), container("2", running), container("3", ContainerState::ContainerExited)];
        let used = [
            stats("2", Some("b"), None),
            stats("1", Some("a"), cpu(4_500_000_000)),
            stats("3", Some("ended"), cpu(1)),
            stats("4", Some("unknown"), cpu(1)),
            stats("1", None, cpu(1)),
        ];
        let linux = LinuxPodSandboxStats { cpu: cpu(5_000_000_000), memory: memory(3 << 20), ..Default::default() };
        let attributes = PodSandboxAttributes { labels: belongs(None), ..Default::default() };
        let sandbox = PodSandboxStats { attributes: Some(attributes), linux: Some(linux) };
        let mut families = MetricFamilies::default();
        families.add_containers(&containers, &used);
        families.add_pods(&[sandbox, PodSandboxStats::default()]);
        families.add_node(&NodeUsage { cpu: 12.25, memory: 4096, at: AT });
        families.add_sample("resource_scrape_error", vec![], 0.0, None);
        let text = families.render();
        let head = "# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in \
                    core-seconds\n# TYPE container_cpu_usage_seconds_total counter\n";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("# TYPE")).count(), METRIC_FAMILIES.len(), "{text}");
        let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            values,
            [
                "container_cpu_usage_seconds_total{container=\"a\",namespace=\"default\",pod=\"p\"} 4.5 1700000000123",
                "container_memory_working_set_bytes{container=\"a\",namespace=\"default\",pod=\"p\"} 1048576 1700000000123",
                "container_memory_working_set_bytes{container=\"b\",namespace=\"default\",pod=\"p\"} 1048576 1700000000123",
                "container_start_time_seconds{container=\"a\",namespace=\"default\",pod=\"p\"} 1.5",
                "container_start_time_seconds{container=\"b\",namespace=\"default\",pod=\"p\"} 1.5",
                "node_cpu_usage_seconds_total 12.25 1700000000123",
                "node_memory_working_set_bytes 4096 1700000000123",
                "pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"p\"} 5 1700000000123",
                "pod_memory_working_set_bytes{namespace=\"default\",pod=\"p\"} 3145728 1700000000123",
                "resource_scrape_error 0",
            ]
        );
    }

    #[tokio::test]
    async fn unreachable_runtime_sets_the_scrape_error() {
        let text = render_resource_metrics(&CriClient::connect_lazily("unix:///nonexistent/cri.sock").unwrap()).await;
        assert!(text.ends_with("\nresource_scrape_error 1\n"), "{text}");
        assert!(text.contains("\nnode_cpu_usage_seconds_total ") && !text.contains("container_cpu"), "{text}");
    }

    #[test]
    fn node_usage_is_parsed_from_proc() {
        let stat = "cpu  100 20 30 9999 8888 4 6 7 5 0\ncpu0 1 1 1 1\n";
        let meminfo = "MemTotal: 100 kB\nMemFree: 30 kB\nInactive: 25 kB\nInactive(file): 20 kB\n";
        assert_eq!(NodeUsage::parse(stat, meminfo, 100, 1), Some(NodeUsage { cpu: 1.6, memory: 50 * 1024, at: 1 }));
        assert_eq!(NodeUsage::parse("cpu  1 2\n", meminfo, 100, 1), None);
        assert_eq!(NodeUsage::parse(stat, "MemTotal: 100 kB\n", 100, 1), None);
    }
}
