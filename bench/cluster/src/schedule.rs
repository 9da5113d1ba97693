//! Scheduling onto nodes that are only objects: their leases are kept here, and no kubelet runs what is bound to them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{rows, watch};

/// Concurrent requests.
const AT_ONCE: usize = 32;
/// A lease lasts four times as long.
const RENEWAL: Duration = Duration::from_secs(10);
/// Throughput is told for each of this many parts, so that its spread is known.
const PARTS: usize = 5;
const SELECTOR: &str = "bench=schedule";

/// The size of the load.
#[derive(clap::Args)]
pub struct ScheduleLoad {
    /// Nodes that are only objects
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Pods to bind to them
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// A file that is made when the nodes are there, and waited for until it is gone
    #[arg(long)]
    pause: Option<std::path::PathBuf>,
}

impl ScheduleLoad {
    pub async fn run(&self, client: &Client) -> anyhow::Result<()> {
        // From the beginning: it may take longer than a lease lasts until all nodes are usable.
        let leases = tokio::spawn(keep_leases(client.clone(), self.nodes));
        let done = async {
            self.make_nodes(client).await?;
            self.make_pods(client).await
        };
        let done = done.await;
        leases.abort();
        done
    }

    async fn make_nodes(&self, client: &Client) -> anyhow::Result<()> {
        let (nodes, leases) = (Api::<Node>::all(client.clone()), leases(client));
        let revision = nodes.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let make = stream::iter(0..self.nodes).map(Ok).try_for_each_concurrent(AT_ONCE, |n| {
            let (nodes, leases) = (nodes.clone(), leases.clone());
            async move {
                leases.create(&PostParams::default(), &lease(n)?).await?;
                nodes.create(&PostParams::default(), &node(n)?).await?;
                // A status is not taken when a node is created.
                nodes.patch_status(&node_name(n), &PatchParams::default(), &Patch::Merge(status())).await?;
                anyhow::Ok(())
            }
        });
        let usable = watch::until(&nodes, SELECTOR, &revision, |seen, _| {
            seen.objects.len() == self.nodes && seen.objects.values().all(is_usable)
        });
        futures::try_join!(make, usable)?;
        if let Some(file) = &self.pause {
            tokio::fs::write(file, "").await?;
            while tokio::fs::try_exists(file).await? {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    async fn make_pods(&self, client: &Client) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let revision = pods.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
        let made = Arc::new(Mutex::new(HashMap::new()));
        let began = Instant::now();
        let create = stream::iter(0..self.pods).map(Ok).try_for_each_concurrent(AT_ONCE, |n| {
            let (pods, made) = (pods.clone(), made.clone());
            async move {
                let pod = pod(n)?;
                let name = pod.metadata.name.clone().unwrap_or_default();
                made.lock().map_err(|_| anyhow::anyhow!("a task panicked"))?.insert(name, Instant::now());
                pods.create(&PostParams::default(), &pod).await?;
                anyhow::Ok(())
            }
        });
        let mut bound: HashMap<String, Instant> = HashMap::new();
        let binding = watch::until(&pods, SELECTOR, &revision, |_, changed| {
            if let Some(pod) = changed
                && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
            {
                bound.entry(pod.metadata.name.clone().unwrap_or_default()).or_insert_with(Instant::now);
            }
            bound.len() == self.pods
        });
        futures::try_join!(create, binding)?;
        let made = made.lock().map_err(|_| anyhow::anyhow!("a task panicked"))?;
        tell(began, &made, &bound);
        Ok(())
    }
}

fn tell(began: Instant, made: &HashMap<String, Instant>, bound: &HashMap<String, Instant>) {
    let mut ends: Vec<Instant> = bound.values().copied().collect();
    ends.sort_unstable();
    let size = ends.len().div_ceil(PARTS);
    let mut last = began;
    let rates: Vec<f64> = ends
        .chunks(size)
        .filter_map(|part| {
            let (from, to) = (last, *part.last()?);
            last = to;
            Some(part.len() as f64 / (to - from).as_secs_f64())
        })
        .collect();
    rows::rates("scheduling, pods bound", &rates);
    let mut took: Vec<Duration> =
        bound.iter().filter_map(|(name, end)| Some(end.saturating_duration_since(*made.get(name)?))).collect();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    rows::seconds("scheduling, median from create to bound", &[at(0.5)]);
    rows::seconds("scheduling, 99 % from create to bound", &[at(0.99)]);
}

/// Renews every lease in time, spread over the interval.
async fn keep_leases(client: Client, count: usize) {
    let leases = leases(&client);
    loop {
        let began = Instant::now();
        for n in 0..count {
            let renewed = json!({"spec": {"renewTime": now()}});
            // A renewal that fails is made good by the next one.
            let _ = leases.patch(&node_name(n), &PatchParams::default(), &Patch::Merge(renewed)).await;
            let due = RENEWAL.mul_f64((n + 1) as f64 / count as f64);
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
    }
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), "kube-node-lease")
}

fn node_name(n: usize) -> String {
    format!("fake-{n}")
}

fn now() -> String {
    format!("{:.6}", Timestamp::now())
}

fn lease(n: usize) -> anyhow::Result<Lease> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": node_name(n)},
        "spec": {"holderIdentity": node_name(n), "leaseDurationSeconds": 40, "renewTime": now()},
    }))?)
}

fn node(n: usize) -> anyhow::Result<Node> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": node_name(n), "labels": {"bench": "schedule", "kubernetes.io/hostname": node_name(n)}},
    }))?)
}

fn status() -> serde_json::Value {
    let size = json!({"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let second = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({"status": {"capacity": size, "allocatable": size, "conditions": [
        {"type": "Ready", "status": "True", "reason": "Bench", "message": "only an object",
         "lastHeartbeatTime": second, "lastTransitionTime": second},
    ]}})
}

fn is_usable(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|found| found.type_ == "Ready" && found.status == "True");
    ready && node.spec.as_ref().is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
}

fn pod(n: usize) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": format!("scheduled-{n}"), "labels": {"bench": "schedule"}},
        "spec": {"nodeSelector": {"bench": "schedule"}, "containers": [
            {"name": "none", "image": "registry.k8s.io/pause:3.10.2",
             "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}},
        ]},
    }))?)
}
