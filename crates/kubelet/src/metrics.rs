//! The `/metrics` endpoint in Prometheus text format.

use std::{fmt::Write, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

/// Renders the metrics of these pods, followed by those of the components of this process.
pub fn render_metrics(pods: &[Arc<Pod>]) -> String {
    let running = pods.iter().filter(|pod| pod_phase(pod) == "Running").count();
    let mut text = String::new();
    write_header(&mut text, "kubelet_running_pods", "Number of pods that have a running pod sandbox");
    write_sample(&mut text, "kubelet_running_pods", running);
    write_header(&mut text, "kubelet_running_containers", "Number of containers currently running");
    for (state, count) in ["created", "exited", "running"].into_iter().zip(count_containers(pods)) {
        write_sample(&mut text, &format!("kubelet_running_containers{{container_state=\"{state}\"}}"), count);
    }
    text.push_str(&client::metrics::render_component_metrics());
    text
}

fn write_header(text: &mut String, name: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} [ALPHA] {help}\n# TYPE {name} gauge");
}

fn write_sample(text: &mut String, name: &str, value: usize) {
    let _ = writeln!(text, "{name} {value}");
}

fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Counts waiting, terminated and running containers.
fn count_containers(pods: &[Arc<Pod>]) -> [usize; 3] {
    let statuses = pods.iter().filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|status| status.container_statuses.iter().flatten());
    let mut counts = [0; 3];
    for state in containers.filter_map(|container| container.state.as_ref()) {
        counts[0] += usize::from(state.waiting.is_some());
        counts[1] += usize::from(state.terminated.is_some());
        counts[2] += usize::from(state.running.is_some());
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_and_containers_are_counted_by_state() {
        let pod = |phase: &str, states: &[&str]| {
            let states: Vec<_> = states
                .iter()
                .map(|state| match *state {
                    "terminated" => json!({"name": "c", "state": {"terminated": {"exitCode": 0}}}),
                    state => json!({"name": "c", "state": {state: {}}}),
                })
                .collect();
            Arc::new(serde_json::from_value(json!({"status": {"phase": phase, "containerStatuses": states}})).unwrap())
        };
        let text = render_metrics(&[pod("Running", &["running", "terminated"]), pod("Pending", &["waiting"])]);
        let values: Vec<&str> = text.lines().filter(|line| line.starts_with("kubelet_")).collect();
        assert_eq!(
            values,
            [
                "kubelet_running_pods 1",
                "kubelet_running_containers{container_state=\"created\"} 1",
                "kubelet_running_containers{container_state=\"exited\"} 1",
                "kubelet_running_containers{container_state=\"running\"} 1",
            ]
        );
    }
}
