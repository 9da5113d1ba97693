//! Memory of the control plane with many pods, on nodes without kubelets.

use std::{io::Read, ops::Range, time::Duration};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// Concurrent requests.
const AT_ONCE: usize = 64;
/// Pods of a node, as many as a kubelet takes by default.
const PODS_PER_NODE: usize = 100;
/// As often as kubelets renew.
const LEASE_PERIOD: Duration = Duration::from_secs(10);

/// Pods that are stored and run nowhere.
#[derive(clap::Args)]
pub struct StoredPodLoad {
    /// Number of pods
    #[arg(long)]
    count: usize,
    /// The number of the first, a multiple of 100
    #[arg(long, default_value_t = 0)]
    first: usize,
}

impl StoredPodLoad {
    /// Creates them, says so in a line, and keeps their nodes healthy until standard input ends.
    pub async fn run(&self, client: &Client) -> anyhow::Result<()> {
        let nodes = self.first / PODS_PER_NODE..(self.first + self.count).div_ceil(PODS_PER_NODE);
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        let created = stream::iter(nodes.clone()).map(Ok).try_for_each_concurrent(AT_ONCE, |number| {
            let (api, leases) = (Api::<Node>::all(client.clone()), leases.clone());
            async move {
                api.create(&PostParams::default(), &node(number)).await?;
                leases.create(&PostParams::default(), &lease(number)).await.map(drop).map_err(anyhow::Error::from)
            }
        });
        created.await?;
        // Those of a former load stay healthy, too.
        let renew = renew_leases(&leases, 0..nodes.end);
        let load = async {
            self.create_pods(client).await?;
            println!("{} pods", self.count);
            tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
            anyhow::Ok(())
        };
        tokio::select! {
            ended = load => ended,
            failed = renew => failed,
        }
    }

    async fn create_pods(&self, client: &Client) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let create = |number: usize| {
            let pods = pods.clone();
            async move {
                let pod = serde_json::from_value(pod(number))?;
                pods.create(&PostParams::default(), &pod).await?;
                let patch = Patch::Merge(json!({"status": status(number)}));
                pods.patch_status(&pod_name(number), &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            }
        };
        stream::iter(self.first..self.first + self.count).map(Ok).try_for_each_concurrent(AT_ONCE, create).await
    }
}

async fn renew_leases(leases: &Api<Lease>, nodes: Range<usize>) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(LEASE_PERIOD).await;
        for number in nodes.clone() {
            let patch = Patch::Merge(json!({"spec": {"renewTime": MicroTime(Timestamp::now())}}));
            leases.patch(&node_name(number), &PatchParams::default(), &patch).await?;
        }
    }
}

fn node_name(number: usize) -> String {
    format!("stored-{number}")
}

fn pod_name(number: usize) -> String {
    format!("stored-pod-{number}")
}

fn lease(number: usize) -> Lease {
    let name = node_name(number);
    let spec = LeaseSpec {
        holder_identity: Some(name.clone()),
        lease_duration_seconds: Some(40),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..Default::default()
    };
    Lease { metadata: kube::api::ObjectMeta { name: Some(name), ..Default::default() }, spec: Some(spec) }
}

fn node(number: usize) -> Node {
    let name = node_name(number);
    let capacity = json!({"pods": "110", "cpu": "64", "memory": "256Gi"});
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {"unschedulable": true},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True",
            "lastHeartbeatTime": STARTED, "lastTransitionTime": STARTED}]},
    });
    serde_json::from_value(node).unwrap_or_default()
}

const STARTED: &str = "2026-01-01T00:00:00Z";

fn pod(number: usize) -> serde_json::Value {
    json!({
        "metadata": {"name": pod_name(number), "labels": {"app": format!("app-{}", number / 10), "tier": "web"}},
        "spec": {"nodeName": node_name(number / PODS_PER_NODE), "containers": [{
            "name": "app", "image": "registry.k8s.io/pause:3.10.2", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }]},
    })
}

fn status(number: usize) -> serde_json::Value {
    let address = format!("10.{}.{}.{}", 64 + (number >> 16), (number >> 8) % 256, number % 256);
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": STARTED});
    json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "startTime": STARTED,
        "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready")],
        "containerStatuses": [{"name": "app", "image": "registry.k8s.io/pause:3.10.2", "imageID": "sha256:0123456789abcdef",
            "containerID": "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}}],
    })
}
