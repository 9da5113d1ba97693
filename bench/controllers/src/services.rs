//! Services of ten endpoints each: from the first pod to the last slice that is complete.

use serde_json::{Value, json};

use crate::{
    fake_kubelet::{NODES, node_name},
    load::{LoadRun, pod_template},
    watch::ObjectCounter,
};

const FULL: usize = 5_000;
const ENDPOINTS: usize = 10;
const SERVICES: &str = "/api/v1/namespaces/services/services";
const PODS: &str = "/api/v1/namespaces/services/pods";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/services/endpointslices";

/// Runs the load.
pub async fn run(run: &LoadRun) -> anyhow::Result<()> {
    run.create_namespace("services").await?;
    let count = run.count(FULL);
    let mut slices = ObjectCounter::start(&run.cluster, SLICES, is_complete).await?;
    let phase = run.begin()?;
    run.cluster.create_all((0..count).map(|number| (SERVICES.to_owned(), service(number)))).await?;
    run.cluster.create_all((0..count * ENDPOINTS).map(|number| (PODS.to_owned(), pod(number)))).await?;
    let ended = slices.wait_for(|seen| seen.existing == count && seen.done == count).await?;
    phase.end(&format!("{count} Services of {ENDPOINTS} endpoints"), ended)
}

fn is_complete(slice: &Value) -> bool {
    let endpoints = slice["endpoints"].as_array().map(Vec::as_slice).unwrap_or_default();
    endpoints.len() == ENDPOINTS && endpoints.iter().all(|endpoint| endpoint["conditions"]["ready"] == true)
}

fn service(number: usize) -> Value {
    let name = format!("service-{number}");
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

fn pod(number: usize) -> Value {
    let mut pod = pod_template(&format!("service-{}", number / ENDPOINTS), "Always");
    pod["metadata"]["name"] = format!("pod-{number}").into();
    pod["spec"]["nodeName"] = node_name(number % NODES).into();
    pod
}
