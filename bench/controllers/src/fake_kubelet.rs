//! Plays the scheduler and every kubelet: pods are bound to nodes in turn, run and get ready or succeed at once, and go
//! when they are deleted.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
};

use anyhow::bail;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::{
    cluster::{BenchCluster, JSON},
    watch::EventStream,
};

/// Nodes that pods are bound to.
pub const NODES: usize = 100;
/// Concurrent pods.
const AT_ONCE: usize = 64;

/// The part of a pod that the kubelet reads.
#[derive(Deserialize)]
struct PodEvent {
    metadata: PodMetadata,
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    namespace: String,
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
    restart_policy: String,
}

/// The last step that was done for a pod.
#[derive(PartialEq, Eq)]
enum PodStage {
    Started,
    Ended,
}

/// The player; it follows all pods until it is stopped.
pub struct FakeKubelet {
    follower: JoinHandle<()>,
}

impl FakeKubelet {
    /// Creates the nodes and begins.
    pub async fn start(cluster: BenchCluster) -> anyhow::Result<Self> {
        cluster.create_all((0..NODES).map(|number| ("/api/v1/nodes".to_owned(), node(number)))).await?;
        let events = EventStream::open(&cluster, "/api/v1/pods").await?;
        let follower = tokio::spawn(async move {
            if let Err(error) = follow(cluster, events).await {
                eprintln!("the fake kubelet ended: {error:#}");
            }
        });
        Ok(Self { follower })
    }

    /// Ends it.
    pub fn stop(self) {
        self.follower.abort();
    }
}

async fn follow(cluster: BenchCluster, mut events: EventStream) -> anyhow::Result<()> {
    let (mut stages, limit) = (HashMap::new(), Arc::new(Semaphore::new(AT_ONCE)));
    let started = Arc::new(AtomicUsize::new(0));
    loop {
        let Some(event) = events.next::<PodEvent>().await? else { continue };
        let pod = event.object;
        let ends = pod.metadata.deletion_timestamp.is_some();
        match event.kind.as_str() {
            "DELETED" => {
                stages.remove(&pod.metadata.uid);
                continue;
            }
            "ADDED" | "MODIFIED" => {}
            other => bail!("the watch of pods sent {other}"),
        }
        let stage = if ends { PodStage::Ended } else { PodStage::Started };
        if stages.get(&pod.metadata.uid).is_some_and(|known| *known == stage || *known == PodStage::Ended) {
            continue;
        }
        stages.insert(pod.metadata.uid.clone(), stage);
        let (cluster, number) = (cluster.clone(), started.fetch_add(1, Ordering::Relaxed));
        let permit = limit.clone().acquire_owned().await?;
        tokio::spawn(async move {
            let result = if ends { end_pod(&cluster, &pod).await } else { start_pod(&cluster, &pod, number).await };
            if let Err(error) = result {
                eprintln!("the fake kubelet cannot play pod {}: {error:#}", pod.metadata.name);
            }
            drop(permit);
        });
    }
}

fn pod_path(pod: &PodEvent) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.metadata.namespace, pod.metadata.name)
}

/// Binds a pod and reports its state. A pod that is gone meanwhile is fine.
async fn start_pod(cluster: &BenchCluster, pod: &PodEvent, number: usize) -> anyhow::Result<()> {
    if pod.spec.node_name.is_none() {
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node_name(number % NODES)});
        let name = &pod.metadata.name;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let path = format!("{}/binding", pod_path(pod));
        let answer = cluster.call(Method::POST, &path, JSON, binding.to_string().into()).await?;
        if !matches!(answer.status, 201 | 404 | 409) {
            bail!("the binding was answered with {}: {:?}", answer.status, answer.body);
        }
    }
    let status = if pod.spec.restart_policy == "Always" { running(number) } else { succeeded(number) };
    match cluster.patch(&format!("{}/status", pod_path(pod)), &json!({"status": status})).await? {
        200 | 404 | 409 => Ok(()),
        status => bail!("the status was answered with {status}"),
    }
}

async fn end_pod(cluster: &BenchCluster, pod: &PodEvent) -> anyhow::Result<()> {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
    let answer = cluster.call(Method::DELETE, &pod_path(pod), JSON, options.to_string().into()).await?;
    match answer.status {
        200 | 202 | 404 | 409 => Ok(()),
        status => bail!("the deletion was answered with {status}: {:?}", answer.body),
    }
}

fn running(number: usize) -> Value {
    let state = json!({"running": {"startedAt": STARTED}});
    status(number, "Running", "True", &state)
}

fn succeeded(number: usize) -> Value {
    let state = json!({"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": STARTED, "finishedAt": STARTED,
        "containerID": CONTAINER}});
    status(number, "Succeeded", "False", &state)
}

const STARTED: &str = "2026-01-01T00:00:00Z";
const CONTAINER: &str = "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn status(number: usize, phase: &str, ready: &str, state: &Value) -> Value {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": STARTED, "observedGeneration": 1});
    let address = format!("10.{}.{}.{}", 64 + (number >> 16) % 64, (number >> 8) % 256, number % 256);
    json!({
        "phase": phase,
        "podIP": address, "podIPs": [{"ip": address}], "hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}],
        "startTime": STARTED,
        "conditions": [condition("PodScheduled", "True"), condition("Initialized", "True"),
            condition("ContainersReady", ready), condition("Ready", ready)],
        "containerStatuses": [{"name": "pause", "image": "registry.k8s.io/pause:3.10.2", "imageID": "sha256:0123456789abcdef",
            "containerID": CONTAINER, "ready": ready == "True", "started": ready == "True", "restartCount": 0, "state": state}],
    })
}

/// The name of a node.
pub fn node_name(number: usize) -> String {
    format!("bench-node-{number}")
}

fn node(number: usize) -> Value {
    let capacity = json!({"pods": "2000", "cpu": "64", "memory": "256Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {"kubernetes.io/hostname": node_name(number)}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}
