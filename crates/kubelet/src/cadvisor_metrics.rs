//! `/metrics/cadvisor`: usage of containers and pods with cAdvisor's names and labels, from the runtime's statistics.

use std::{collections::BTreeMap, fmt::Write};

use runtime::cri::types::{ContainerStats, PodSandboxStats, UInt64Value};

use crate::{context::KubeletContext, runtime_status::labels};

/// Name, type and help of the families, in output order.
const FAMILIES: [(&str, &str, &str); 12] = [
    (
        "cadvisor_version_info",
        "gauge",
        "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.",
    ),
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds."),
    ("container_fs_usage_bytes", "gauge", "Number of bytes that are consumed by the container on this filesystem."),
    ("container_memory_rss", "gauge", "Size of RSS in bytes."),
    (
        "container_memory_usage_bytes",
        "gauge",
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
    ),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes."),
    ("container_network_receive_bytes_total", "counter", "Cumulative count of bytes received"),
    ("container_network_receive_errors_total", "counter", "Cumulative count of errors encountered while receiving"),
    ("container_network_transmit_bytes_total", "counter", "Cumulative count of bytes transmitted"),
    ("container_network_transmit_errors_total", "counter", "Cumulative count of errors encountered while transmitting"),
    ("machine_cpu_cores", "gauge", "Number of logical CPU cores."),
    ("machine_memory_bytes", "gauge", "Amount of memory installed on the machine."),
];

/// Collects and renders the metrics; without the runtime those of the machine alone.
pub async fn render_cadvisor_metrics(kubelet: &KubeletContext) -> String {
    let (containers, sandboxes) = tokio::join!(kubelet.cri.container_stats(), kubelet.cri.sandbox_stats());
    let mut samples = CadvisorSamples::default();
    samples.add("machine_cpu_cores", &[], (kubelet.capacity.cpu_millis / 1000) as f64, 0);
    samples.add("machine_memory_bytes", &[], kubelet.capacity.memory as f64, 0);
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    samples.add("cadvisor_version_info", &[("kernelVersion", &kernel)], 1.0, 0);
    match (&containers, &sandboxes) {
        (Ok(containers), Ok(sandboxes)) => {
            containers.iter().for_each(|stats| samples.add_container(stats));
            sandboxes.iter().for_each(|stats| samples.add_sandbox(stats));
        }
        (Err(error), _) | (_, Err(error)) => tracing::warn!(%error, "kubelet: container metrics incomplete"),
    }
    samples.render()
}

/// Lines by family.
#[derive(Default)]
struct CadvisorSamples(BTreeMap<&'static str, Vec<String>>);

impl CadvisorSamples {
    /// Adds a sample; `at` is in nanoseconds, zero for none.
    fn add(&mut self, family: &'static str, labels: &[(&str, &str)], value: f64, at: i64) {
        let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
        let at = if at > 0 { format!(" {}", at / 1_000_000) } else { String::new() };
        self.0.entry(family).or_default().push(format!("{family}{labels} {value}{at}"));
    }

    fn add_value(&mut self, family: &'static str, labels: &[(&str, &str)], value: Option<&UInt64Value>, at: i64) {
        if let Some(value) = value {
            self.add(family, labels, value.value as f64, at);
        }
    }

    fn add_container(&mut self, stats: &ContainerStats) {
        let Some(attributes) = &stats.attributes else { return };
        let label = |name: &str| attributes.labels.get(name).map_or("", String::as_str);
        let named = [
            ("container", label(labels::CONTAINER)),
            ("id", attributes.id.as_str()),
            ("name", attributes.id.as_str()),
            ("namespace", label(labels::POD_NAMESPACE)),
            ("pod", label(labels::POD_NAME)),
        ];
        if let Some(cpu) = &stats.cpu
            && let Some(used) = &cpu.usage_core_nano_seconds
        {
            self.add("container_cpu_usage_seconds_total", &named, used.value as f64 / 1e9, cpu.timestamp);
        }
        if let Some(memory) = &stats.memory {
            let at = memory.timestamp;
            self.add_value("container_memory_rss", &named, memory.rss_bytes.as_ref(), at);
            self.add_value("container_memory_usage_bytes", &named, memory.usage_bytes.as_ref(), at);
            self.add_value("container_memory_working_set_bytes", &named, memory.working_set_bytes.as_ref(), at);
        }
        if let Some(layer) = &stats.writable_layer {
            self.add_value("container_fs_usage_bytes", &named, layer.used_bytes.as_ref(), layer.timestamp);
        }
    }

    fn add_sandbox(&mut self, stats: &PodSandboxStats) {
        let (Some(attributes), Some(linux)) = (&stats.attributes, &stats.linux) else { return };
        let (Some(metadata), Some(network)) = (&attributes.metadata, &linux.network) else { return };
        for interface in network.default_interface.iter().chain(&network.interfaces) {
            let named = [
                ("container", ""),
                ("id", attributes.id.as_str()),
                ("interface", interface.name.as_str()),
                ("name", attributes.id.as_str()),
                ("namespace", metadata.namespace.as_str()),
                ("pod", metadata.name.as_str()),
            ];
            let at = network.timestamp;
            self.add_value("container_network_receive_bytes_total", &named, interface.rx_bytes.as_ref(), at);
            self.add_value("container_network_receive_errors_total", &named, interface.rx_errors.as_ref(), at);
            self.add_value("container_network_transmit_bytes_total", &named, interface.tx_bytes.as_ref(), at);
            self.add_value("container_network_transmit_errors_total", &named, interface.tx_errors.as_ref(), at);
        }
    }

    fn render(mut self) -> String {
        let mut text = String::new();
        for (name, kind, help) in FAMILIES {
            let Some(mut lines) = self.0.remove(name) else { continue };
            lines.sort_unstable();
            lines.dedup();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{}", lines.join("\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use runtime::cri::types::{ContainerAttributes, CpuUsage};

    use super::*;

    #[test]
    fn containers_have_their_pods_labels() {
        let labels = [(labels::POD_NAMESPACE, "ns"), (labels::POD_NAME, "p"), (labels::CONTAINER, "c")];
        let labels = labels.map(|(key, value)| (key.to_string(), value.to_string())).into();
        let used = Some(UInt64Value { value: 2_500_000_000 });
        let mut samples = CadvisorSamples::default();
        samples.add_container(&ContainerStats {
            attributes: Some(ContainerAttributes { id: "1".into(), labels, ..Default::default() }),
            cpu: Some(CpuUsage { timestamp: 1_000_000, usage_core_nano_seconds: used, ..Default::default() }),
            ..Default::default()
        });
        let line =
            "container_cpu_usage_seconds_total{container=\"c\",id=\"1\",name=\"1\",namespace=\"ns\",pod=\"p\"} 2.5 1\n";
        assert!(samples.render().ends_with(line));
    }
}
