//! Samples the resource usage of containers from the kubelets' `/metrics/resource`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use admission::container_usage::UsageSample;
use api::{Value, meta, status::Status};
use apiserver_core::{body::full_body, loopback};
use http::{Request, header};
use http_body_util::{BodyExt, Limited};
use tokio_util::sync::CancellationToken;

use crate::{Server, connect};

/// Time between samples.
const SAMPLE_PERIOD: Duration = Duration::from_secs(60);
/// Timeout of a kubelet request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a metrics page.
const MAX_PAGE: usize = 8 << 20;

/// Namespace, pod and container.
type ContainerKey = (String, String, String);

/// The usage of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct UsageReading {
    /// Seconds of CPU since it started.
    cpu: Option<f64>,
    /// Bytes.
    memory: Option<u64>,
}

/// Samples until `shutdown`.
pub async fn run_usage_sampler(server: &Server, shutdown: &CancellationToken) {
    let mut before = CpuReadings::default();
    loop {
        if let Err(status) = sample_kubelets(server, &mut before).await {
            tracing::warn!(error = status.message, "usage sampler: sampling failed, retrying after the period");
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(SAMPLE_PERIOD)).await.is_none() {
            return;
        }
    }
}

/// CPU seconds of containers at the previous sample.
#[derive(Default)]
struct CpuReadings(HashMap<ContainerKey, (f64, Instant)>);

impl CpuReadings {
    /// CPU usage in millicores since the previous sample.
    fn cpu_rate(&self, container: &ContainerKey, seconds: f64, now: Instant) -> Option<u64> {
        let (earlier, at) = self.0.get(container)?;
        let elapsed = now.duration_since(*at).as_secs_f64();
        // A restarted container has no rate.
        (elapsed > 0.0 && seconds >= *earlier).then(|| ((seconds - earlier) / elapsed * 1000.0).round() as u64)
    }
}

/// Samples all kubelets once.
async fn sample_kubelets(server: &Server, before: &mut CpuReadings) -> Result<(), Status> {
    let registry = server.registry();
    let pods = registry.list_objects(loopback::find_resource("", "v1", "pods")?, "").await?;
    let images = container_images(&pods);
    let nodes = registry.list_objects(loopback::find_resource("", "v1", "nodes")?, "").await?;
    let mut seen = HashMap::new();
    for node in &nodes {
        let page = match tokio::time::timeout(REQUEST_TIMEOUT, fetch_metrics_page(server, meta::name(node))).await {
            Ok(Ok(page)) => page,
            // Unreachable nodes are handled by the node lifecycle controller.
            Ok(Err(error)) => {
                tracing::debug!(
                    node = meta::name(node),
                    %error,
                    "usage sampler: kubelet request failed, skipping the node"
                );
                continue;
            }
            Err(_) => continue,
        };
        let now = Instant::now();
        for (container, reading) in parse_metrics_page(&page) {
            let cpu = reading.cpu.and_then(|seconds| before.cpu_rate(&container, seconds, now));
            if let Some(image) = images.get(&container) {
                server.shared.usage.record_sample(
                    &container.0,
                    image,
                    UsageSample { at: now, cpu, memory: reading.memory },
                );
            }
            reading.cpu.map(|seconds| seen.insert(container, (seconds, now)));
        }
    }
    before.0 = seen;
    Ok(())
}

/// The images of all containers.
fn container_images(pods: &[Value]) -> HashMap<ContainerKey, String> {
    let of = |pod: &Value| -> Vec<(ContainerKey, String)> {
        let containers =
            ["initContainers", "containers"].into_iter().flat_map(|list| meta::list_at(pod, &["spec", list]));
        let named = containers.map(|container| {
            let text = |field: &str| meta::string_at(container, &[field]).to_owned();
            ((meta::namespace(pod).to_owned(), meta::name(pod).to_owned(), text("name")), text("image"))
        });
        named.collect()
    };
    pods.iter().flat_map(of).collect()
}

async fn fetch_metrics_page(server: &Server, node: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let kubelet = connect::node_kubelet(server, node).await.map_err(|status| status.message)?;
    let request = Request::get("/metrics/resource").header(header::HOST, kubelet.host_and_port()).body(full_body(""));
    let answer = kubelet.send_request(request?).await?;
    if !answer.status().is_success() {
        return Err(format!("kubelet responded with {}", answer.status()).into());
    }
    let body = Limited::new(answer.into_body(), MAX_PAGE).collect().await?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

/// Parses the usage of each container.
fn parse_metrics_page(page: &str) -> HashMap<ContainerKey, UsageReading> {
    let mut found: HashMap<ContainerKey, UsageReading> = HashMap::new();
    for line in page.lines() {
        let Some((name, rest)) = line.split_once('{') else { continue };
        if !matches!(name, "container_cpu_usage_seconds_total" | "container_memory_working_set_bytes") {
            continue;
        }
        let Some((labels, value)) = rest.rsplit_once('}') else { continue };
        let Some(value) = value.split_whitespace().next().and_then(|value| value.parse::<f64>().ok()) else { continue };
        let label = |name: &str| {
            let text = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""))?;
            text.strip_suffix('"').map(str::to_owned)
        };
        let (Some(namespace), Some(pod), Some(container)) = (label("namespace"), label("pod"), label("container"))
        else {
            continue;
        };
        let reading = found.entry((namespace, pod, container)).or_default();
        match name {
            "container_cpu_usage_seconds_total" => reading.cpu = Some(value),
            _ => reading.memory = Some(value.max(0.0) as u64),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use admission::container_usage::{ComputeResource, UsageQuery};
    use apiserver_core::loopback::{LoopbackClient, ObjectKey};
    use http::Response;
    use serde_json::json;

    use super::*;
    use crate::{ServerOptions, fixture, tests::authn::listener::Listener};

    const PAGE: &str = "# HELP container_cpu_usage_seconds_total x\n# TYPE container_cpu_usage_seconds_total counter\n\
        container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"p\"} 4.5 1700000000000\n\
        container_memory_working_set_bytes{container=\"c\",namespace=\"default\",pod=\"p\"} 1.2e+07 1700000000000\n\
        node_cpu_usage_seconds_total 9\ncontainer_start_time_seconds{container=\"c\"} 1\nnonsense{\n";

    #[test]
    fn metrics_page_is_parsed() {
        let container = || ("default".to_owned(), "p".to_owned(), "c".to_owned());
        let want = HashMap::from([(container(), UsageReading { cpu: Some(4.5), memory: Some(12_000_000) })]);
        assert_eq!(parse_metrics_page(PAGE), want);
        let now = Instant::now();
        let before = CpuReadings(HashMap::from([(container(), (4.0, now))]));
        assert_eq!(before.cpu_rate(&container(), 5.0, now + Duration::from_secs(10)), Some(100));
        assert_eq!(before.cpu_rate(&container(), 1.0, now + Duration::from_secs(10)), None, "it was started anew");
        assert_eq!(before.cpu_rate(&container(), 5.0, now), None);
    }

    #[tokio::test]
    async fn kubelet_usage_is_recorded() {
        let (server, _dir) = fixture::start_server(ServerOptions::default()).await;
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let listener = Listener::start(|sent| {
            assert_eq!(sent.path, "/metrics/resource");
            let seconds = ASKED.fetch_add(1, Ordering::Relaxed) * 1000;
            Response::new(PAGE.replace("4.5", &seconds.to_string()))
        })
        .await;
        let port: u16 = listener.url.rsplit(':').next().unwrap().parse().unwrap();
        let system = LoopbackClient::new(&**server.registry());
        let make = async |resource: &str, namespace: &str, object: Value| {
            let resource = apiserver_core::loopback::find_resource("", "v1", resource).unwrap();
            system.create_object(ObjectKey { resource, namespace, name: "" }, &object).await.unwrap();
        };
        let status = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
        make("nodes", "", json!({"metadata": {"name": "n"}, "status": status})).await;
        make("serviceaccounts", "default", json!({"metadata": {"name": "default"}})).await;
        let containers = json!([{"name": "c", "image": "nginx:1"}]);
        make("pods", "default", json!({"metadata": {"name": "p"}, "spec": {"containers": containers}})).await;
        let mut before = CpuReadings::default();
        sample_kubelets(&server, &mut before).await.unwrap();
        sample_kubelets(&server, &mut before).await.unwrap();
        let wanted = UsageQuery { image: "nginx:1", exact: true, namespace: Some("default"), within: SAMPLE_PERIOD };
        let percentile = |kind| server.shared.usage.percentile(kind, 90, wanted, Instant::now());
        assert_eq!(percentile(ComputeResource::Memory), Some((12_000_000, 2)));
        assert!(matches!(percentile(ComputeResource::Cpu), Some((1.., 1))), "two readings make a rate");
    }
}
