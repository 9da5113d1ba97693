//! One workload on one server with one scheduler, from the first node to the last pod.

use std::time::Duration;

use ferry_bench_api::{pki::BenchPki, servers::MeasuredServer};
use futures::future;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    cluster::{BenchCluster, NewObject},
    scheduler::MeasuredScheduler,
    templates::{self, NAMESPACES, PodTemplate},
    workloads::{Churn, Workload},
};

/// The cost of a workload.
pub struct WorkloadResult {
    /// Pods bound per second, from the first create to the last binding.
    pub rate: f64,
    /// CPU time of the scheduler for a pod.
    pub scheduler_cpu: Duration,
    /// CPU time of the API server, and its store, for a pod.
    pub server_cpu: Duration,
    /// Memory of the scheduler at the end, in bytes.
    pub resident: u64,
    /// Median and 99th percentile of the search for a node, in seconds.
    pub cycle: [Option<f64>; 2],
}

/// Runs a workload.
pub async fn run_workload(
    workload: &Workload,
    server: &MeasuredServer,
    scheduler: &mut MeasuredScheduler,
    pki: &BenchPki,
) -> anyhow::Result<WorkloadResult> {
    let cluster = BenchCluster::connect(server.port, &pki.client()?).await?;
    prepare(workload, &cluster).await?;
    let objects = measured_pods(workload, &cluster).await?;
    let (_, count) = workload.measured;
    let mut bound = cluster.watch_bound(NAMESPACES[1]).await?;
    let churn = tokio::spawn(churn(workload.churn, cluster.clone()));
    let (before, server_before, began) = (scheduler.figures().await?, server.cpu()?, Instant::now());
    let (_, ended) = future::try_join(cluster.create_all(objects), bound.wait_for(count)).await?;
    let (after, server_after) = (scheduler.figures().await?, server.cpu()?);
    churn.abort();
    let each = |cpu: Duration| cpu / u32::try_from(count).unwrap_or(u32::MAX);
    let cycles = after.cycles.since(&before.cycles);
    Ok(WorkloadResult {
        rate: count as f64 / (ended - began).as_secs_f64(),
        scheduler_cpu: each(after.cpu - before.cpu),
        server_cpu: each(server_after - server_before),
        resident: after.resident,
        cycle: [cycles.quantile(0.5), cycles.quantile(0.99)],
    })
}

/// Creates nodes and everything else that is there before; returns when the first pods are bound.
async fn prepare(workload: &Workload, cluster: &BenchCluster) -> anyhow::Result<()> {
    let of_kind = |path: &'static str, object: serde_json::Value| NewObject::new(path, &object);
    let namespace = |name| of_kind("/api/v1/namespaces", json!({"metadata": {"name": name}}));
    cluster.create_all(NAMESPACES.into_iter().map(namespace).collect()).await?;
    let node = |number| of_kind("/api/v1/nodes", templates::node(number, workload.zones, workload.pods_per_node));
    cluster.create_all((0..workload.nodes).map(node).collect()).await?;
    if workload.has(PodTemplate::Volume) {
        let node = |number| of_kind("/apis/storage.k8s.io/v1/csinodes", templates::csi_node(number));
        cluster.create_all((0..workload.nodes).map(node).collect()).await?;
    }
    if workload.has(PodTemplate::Claim) {
        let class = of_kind("/apis/resource.k8s.io/v1/deviceclasses", templates::device_class());
        cluster.create_all(vec![class]).await?;
        let slice = |number| of_kind("/apis/resource.k8s.io/v1/resourceslices", templates::resource_slice(number, 10));
        cluster.create_all((0..workload.nodes).map(slice).collect()).await?;
    }
    cluster.create_all(pods(PodTemplate::Gated, NAMESPACES[0], "gated", workload.waiting)).await?;
    let mut bound = cluster.watch_bound(NAMESPACES[0]).await?;
    let mut total = 0;
    for (place, (template, count)) in workload.init.iter().enumerate() {
        let prefix = format!("init-{place}");
        create_dependents(*template, NAMESPACES[0], &prefix, *count, cluster).await?;
        total += count;
        let created = cluster.create_all(pods(*template, NAMESPACES[0], &prefix, *count));
        future::try_join(created, bound.wait_for(total)).await?;
    }
    Ok(())
}

/// Creates what measured pods refer to, and returns the pods.
async fn measured_pods(workload: &Workload, cluster: &BenchCluster) -> anyhow::Result<Vec<NewObject>> {
    let (template, count) = workload.measured;
    create_dependents(template, NAMESPACES[1], "measured", count, cluster).await?;
    Ok(pods(template, NAMESPACES[1], "measured", count))
}

fn pods(template: PodTemplate, namespace: &str, prefix: &str, count: usize) -> Vec<NewObject> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = |number| NewObject::new(&path, &templates::pod(template, &format!("{prefix}-{number}")));
    (0..count).map(pod).collect()
}

async fn create_dependents(
    template: PodTemplate,
    namespace: &str,
    prefix: &str,
    count: usize,
    cluster: &BenchCluster,
) -> anyhow::Result<()> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    match template {
        PodTemplate::Volume => {
            let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
            let claim = |name: &String| NewObject::new(&path, &templates::volume_claim(namespace, name));
            cluster.create_all(names.iter().map(claim).collect()).await?;
            let volume =
                |name: &String| NewObject::new("/api/v1/persistentvolumes", &templates::volume(namespace, name));
            cluster.create_all(names.iter().map(volume).collect()).await?;
            let statuses: Vec<String> = names.iter().map(|name| format!("{path}/{name}/status")).collect();
            cluster.patch_all(&statuses, r#"{"status":{"phase":"Bound"}}"#).await
        }
        PodTemplate::Claim => {
            let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims");
            let claim = |name: &String| NewObject::new(&path, &templates::resource_claim(name));
            cluster.create_all(names.iter().map(claim).collect()).await
        }
        _ => Ok(()),
    }
}

/// Goes on until it is aborted.
async fn churn(churn: Churn, cluster: BenchCluster) -> anyhow::Result<()> {
    let path = format!("/api/v1/namespaces/{}", NAMESPACES[0]);
    let pods = format!("{path}/pods");
    for number in 0.. {
        match churn {
            Churn::None => return Ok(()),
            Churn::Create(template) => {
                let pod = templates::pod(template, &format!("churn-{number}"));
                cluster.create_all(vec![NewObject::new(&pods, &pod)]).await?;
                sleep(Duration::from_millis(200)).await;
            }
            Churn::DeleteBound => {
                cluster.delete(&format!("{pods}/init-0-{number}")).await?;
                sleep(Duration::from_millis(20)).await;
            }
            Churn::Recreate => {
                let name = format!("churn-{number}");
                let large = templates::pod(PodTemplate::HighPriorityLargeCpu, &name);
                let objects = [
                    ("/api/v1/nodes".to_owned(), templates::churn_node(&name)),
                    (pods.clone(), large),
                    (format!("{path}/services"), templates::churn_service(&name)),
                ];
                for (path, object) in objects {
                    cluster.create_all(vec![NewObject::new(&path, &object)]).await?;
                    sleep(Duration::from_secs(1)).await;
                    cluster.delete(&format!("{path}/{name}")).await?;
                }
            }
        }
    }
    Ok(())
}

/// A result as rows of name, unit and value.
pub fn rows(workload: &Workload, result: &WorkloadResult) -> Vec<(String, &'static str, f64)> {
    let name = workload.name();
    let micro = |cpu: Duration| cpu.as_secs_f64() * 1e6;
    let mut rows = vec![
        (format!("{name}: pods bound"), "/s", result.rate),
        (format!("{name}: CPU of the scheduler per pod"), "µs", micro(result.scheduler_cpu)),
        (format!("{name}: CPU of the API server per pod"), "µs", micro(result.server_cpu)),
        (format!("{name}: memory of the scheduler"), "MB", result.resident as f64 / 1e6),
    ];
    let quantiles = ["median of a cycle", "99 % of a cycle"];
    for (what, value) in quantiles.into_iter().zip(result.cycle) {
        rows.extend(value.map(|value| (format!("{name}: {what}"), "ms", value * 1e3)));
    }
    rows
}
